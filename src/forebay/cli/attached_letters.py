"""`forebay dlq … --attach URL`: letters of a running pipeline, by statements that run there."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.cli.attach import Attached
from forebay.cli.output import OutputFormat, show_rows
from forebay.cli.output import show as show_result
from forebay.errors import MissingOptionError, OptionConflictError, OptionValueError

LETTERS = "forebay_catalog.dead_letters"
_BYTES = ("key_bytes", "value_bytes", "headers")


def refuse(**given: Any) -> None:
    """Options that only make sense where the command itself runs."""
    for name, value in given.items():
        if value:
            flag = name.rstrip("_").replace("_", "-")
            raise OptionConflictError(
                f"--{flag} and --attach do not go together",
                option=flag,
                remedy=f"leave one of them out, or use --home without --attach for --{flag}",
            )


def ls(
    at: Attached, source: str | None, where: str | None, kind: str | None, limit: int, output: OutputFormat
) -> None:
    from forebay.deadletter.entry import COLUMNS

    table = output is OutputFormat.TABLE
    shown = ["id", "failed_at", "error_kind", "state", "error_message"]
    names = ["source", *shown] if table else [name for name in COLUMNS if name not in _BYTES]
    listed = ", ".join(f"`{name}`" for name in names)
    bound = f" ORDER BY failed_at DESC LIMIT {limit}" if limit else " ORDER BY failed_at DESC"
    query = f"SELECT {listed} FROM {LETTERS}{condition(source, where, kind)}{bound}"  # noqa: S608 - SQL is what the user writes
    for result in at.sql(query):
        show_result(result, output)


def stats(at: Attached, source: str | None, where: str | None, output: OutputFormat) -> None:
    by = "source, error_kind, state, field"
    query = f"SELECT {by}, count(*) AS letters FROM {LETTERS}{condition(source, where, None)} GROUP BY {by}"  # noqa: S608
    for result in at.sql(query):
        show_result(result, output)


def put(
    at: Attached,
    verb: str,
    source: str | None,
    where: str | None,
    kind: str | None,
    ids: list[str] | None,
    rest: str,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """REPLAY or DISCARD."""
    if source is None:
        raise MissingOptionError("whose letters?", option="source", remedy="--source")
    chosen = condition(None, where, kind, ids)
    statement = f"{verb} DEAD LETTERS FROM {source}{chosen}{rest}{' DRY RUN' if dry_run else ''}"
    for result in at.sql(statement):
        if output is OutputFormat.TABLE:
            for line in result.notes:
                print(line)
        else:
            show_rows(result.rows(), output)


def show(at: Attached, source: str | None, id: str, output: OutputFormat) -> None:
    """One letter, as the dashboard has it."""
    if source is None:
        raise MissingOptionError("whose letters?", option="source", remedy="--source")
    owners = at.get("/api/letters")
    owner = next((each["key"] for each in owners if each["name"] == source), source)
    found = at.get("/api/letters/letter", owner=owner, id=id)
    if output is not OutputFormat.TABLE:
        show_rows([found], output)
        return
    _draw(found, Console())


def _draw(found: dict[str, Any], console: Console) -> None:
    row = found["row"]
    console.print(Text.assemble((row["kind"], "bold red"), f": {found['message']}"), soft_wrap=True)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    grid.add_row("record", f"{row['topic']}, partition {row['partition']}, offset {row['offset']}")
    if row["field"]:
        grid.add_row("field", Text(row["field"]))
    for part in ("key", "value"):
        if found[part] is not None:
            text = found[part]["text"] or found[part]["decoded"]
            grid.add_row(part, Text(text if text is not None else found[part]["note"] or "not text"))
    for header in found["headers"]:
        value = header["text"] if header["text"] is not None else header["hex"] or "•••"
        grid.add_row("header", Text(f"{header['name']} = {value}"))
    grid.add_row("it now", Text(found["now"]))
    grid.add_row("state", Text(f"{row['state']}; {found['fate_reason']}"))
    console.print(grid)
    console.print(Text.assemble(("remedy", "bold green"), f"  {found['remedy']}"), soft_wrap=True)


def condition(source: str | None, where: str | None, kind: str | None, ids: list[str] | None = None) -> str:
    """A WHERE of what a command selects; nothing where it selects all."""
    if ids and (where is not None or kind is not None):
        raise OptionConflictError("--id names letters, --where and --kind select them: choose one")
    parts = []
    if source is not None:
        parts.append(f"source = {quoted(source)}")
    if where is not None:
        parts.append(f"({where})")
    if kind is not None:
        parts.append(f"error_kind = {quoted(kind)}")
    if ids:
        parts.append(f"({' OR '.join(_place(each) for each in ids)})")
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _place(id: str) -> str:
    parts = id.split("/")
    if len(parts) not in (3, 4) or not (parts[1].isdigit() and parts[2].isdigit()):
        raise OptionValueError(
            f"'{id}' is no letter", option="id", remedy="topic/partition/offset, as ls shows it"
        )
    return f"(topic = {quoted(parts[0])} AND partition = {parts[1]} AND `offset` = {parts[2]})"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
