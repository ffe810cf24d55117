"""`forebay sql`: the command; the shell itself is in `shell.py`, which is imported when there is one to run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show, words
from forebay.cli.run import MasterOption

if TYPE_CHECKING:
    from forebay.runtime.results import Result


def sql(
    execute: Annotated[
        str | None,
        typer.Option("--execute", "-e", help="run these statements and end; - reads them from stdin"),
    ] = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    master: MasterOption = "local[*]",
) -> None:
    """A SQL shell; the queries of views created in it run as long as it does.

    Examples: forebay sql · forebay sql -e "SELECT * FROM bars LIMIT 5" -o json
    """
    if execute is None and sys.stdin.isatty():
        from forebay.cli.shell import loop
        from forebay.runtime.session import connect

        with connect(home, master) as session:
            loop(session, output)
        return
    script = sys.stdin.read() if execute in (None, "-") else execute
    assert script is not None
    for result in _results(home, master, script):
        show(result, output)


def _results(home: Path, master: str, script: str) -> Iterator[Result]:
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
    from forebay.runtime.session import connect

    with connect(home, master) as session:
        yield from session.each(script, skip=done)
        running = [query.view for query in session.queries() if query.state == "running"]
        if running:
            words.print(
                f"note: {', '.join(running)} runs only while something runs it, and this command ends now. "
                "Type: forebay run (every view of this home), or stay in a shell: forebay sql",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
