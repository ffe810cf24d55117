"""`forebay recover VIEW`: a view whose checkpoint is lost goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.completion import complete_view
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import words
from forebay.cli.phases import Phases
from forebay.cli.spark_options import LOCAL, ArchiveOption, ConfOption, MasterOption, archive_of, conf_of


def recover(
    views: Annotated[list[str], typer.Argument(help="the views", autocompletion=complete_view)],
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="make their tables anew of what the topics still hold: for views whose windows or joins Spark kept",
        ),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    master: MasterOption = LOCAL,
    archive: ArchiveOption = None,
    conf: ConfOption = None,
) -> None:
    """Go on with views whose checkpoint is lost, where their tables stand.

    Each commit of a view's table says where its batch ended in the topic, so nothing is lost and nothing is there twice. What
    was in the checkpoint alone, windows and joins that Spark kept, is gone: --rebuild reads the topics again, and names the
    offsets that they do not hold any more. Afterwards: forebay run.

    Examples: forebay recover bars · forebay recover sessions --rebuild
    """
    from forebay.runtime.session import connect

    with connect(home, master, conf_of(conf), archive=archive_of(archive)) as session:
        for view in views:
            with Phases() as phases:
                phases.say(f"recovering {view}")
                done = session.recover(view, rebuild=rebuild)
            for line in done:
                words.print(line, markup=False, highlight=False)
