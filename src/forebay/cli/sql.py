"""`forebay sql`: the command; the shell itself is in `shell.py`, which is imported when there is one to run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.attach import Attached, AttachOption
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show, words
from forebay.cli.run import CheckpointsOption, StorageOption
from forebay.cli.spark_options import LOCAL, ArchiveOption, ConfOption, MasterOption, archive_of, conf_of
from forebay.errors import OptionConflictError

if TYPE_CHECKING:
    from forebay.runtime.results import Result
    from forebay.runtime.session import Session


def sql(
    execute: Annotated[
        str | None,
        typer.Option("--execute", "-e", help="run these statements and end; - reads them from stdin"),
    ] = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    master: MasterOption = LOCAL,
    archive: ArchiveOption = None,
    conf: ConfOption = None,
    storage: StorageOption = None,
    checkpoints: CheckpointsOption = None,
    attach: AttachOption = None,
) -> None:
    """A SQL shell; the queries of views created in it run as long as it does.

    Examples: forebay sql · forebay sql -e "SELECT * FROM bars LIMIT 5" -o json ·
    forebay sql --attach http://localhost:8420 -e "PAUSE SOURCE orders"
    """
    if attach is not None:
        _attached(attach, execute, output)
        return
    if execute is None and sys.stdin.isatty():
        from forebay.cli.shell import loop

        with _session(home, master, archive, conf, storage, checkpoints) as session:
            loop(session, output)
        return
    script = sys.stdin.read() if execute in (None, "-") else execute
    assert script is not None
    for result in _results(home, script, lambda: _session(home, master, archive, conf, storage, checkpoints)):
        show(result, output)


def _session(
    home: Path,
    master: str,
    archive: str | None,
    conf: list[str] | None,
    storage: str | None,
    checkpoints: str | None,
) -> Session:
    from forebay.runtime.session import connect

    return connect(
        home, master, conf_of(conf), archive=archive_of(archive), storage=storage, checkpoints=checkpoints
    )


def _attached(attach: str, execute: str | None, output: OutputFormat) -> None:
    """Statements of `-e` or of stdin, run by the process behind a dashboard."""
    if execute is None and sys.stdin.isatty():
        raise OptionConflictError(
            "--attach runs statements that are given", option="attach", remedy="-e 'SELECT …', or - for stdin"
        )
    script = sys.stdin.read() if execute in (None, "-") else execute
    assert script is not None
    for result in Attached(attach).sql(script):
        show(result, output)


def _results(home: Path, script: str, open_session: Callable[[], Session]) -> Iterator[Result]:
    """Statements that only look are answered without a session; the first that needs one opens it for all that follow."""
    from forebay.runtime.home import Home
    from forebay.sql import parse

    done = 0
    with Home(home) as found:
        for statement in parse(script):
            result = found.run(statement)
            if result is None:
                break
            yield result
            done += 1
        else:
            return
    with open_session() as session:
        yield from session.each(script, skip=done)
        running = [query.view for query in session.queries() if query.state == "running"]
        if running:
            words.print(
                f"note: {', '.join(running)} runs only while something runs it, and this command ends now. "
                "Type: forebay run (every view of this home), or stay in a shell: forebay sql",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
