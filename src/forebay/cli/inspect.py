"""`forebay show`, `lag`, `tail`: looking at a home, also while another process runs its pipeline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.attach import Attached, AttachOption
from forebay.cli.completion import complete_view
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_items, show_rows
from forebay.cli.output import show as show_result

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="FOREBAY_HOME", help="where sources, views and checkpoints are kept")
]
DEFAULT_HOME = Path(".forebay")


class ShownKind(StrEnum):
    SOURCES = "sources"
    VIEWS = "views"
    SINKS = "sinks"
    QUERIES = "queries"


def show(
    kind: Annotated[ShownKind, typer.Argument(help="what to list")],
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """List sources, views, sinks or queries.

    Examples: forebay show queries -o json · forebay show queries --attach http://localhost:8420
    """
    if attach is not None:
        for result in Attached(attach).sql(f"SHOW {kind.value.upper()}"):
            show_result(result, output)
        return
    from forebay.runtime.home import Home

    with Home(home) as found:
        show_result(found.show(kind.value), output)


def lag(
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """How far each source's consumer group is behind, partition by partition, as the brokers see it."""
    if attach is not None:
        for result in Attached(attach).sql("SHOW LAG"):
            show_result(result, output)
        return
    from forebay.runtime.home import Home
    from forebay.runtime.status import SourceLag

    with Home(home) as found:
        show_items(SourceLag, found.lag(), output)


def tail(
    view: Annotated[str, typer.Argument(help="the view to follow", autocompletion=complete_view)],
    after: Annotated[int | None, typer.Option(help="go on behind this version of the view")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="end after this many seconds without a change")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """Follow a view: every change as a line of JSON, until Ctrl-C.

    Example: forebay tail bars | jq .symbol
    """
    if attach is not None:
        for row in Attached(attach).tail(view, after, timeout):
            show_rows([row], OutputFormat.JSONL)
        return
    from forebay.runtime.home import Home

    with Home(home) as found, found.subscribe(view, after=after, timeout=timeout) as changes:
        for batch in changes:
            show_rows(batch.to_pylist(), OutputFormat.JSONL)
