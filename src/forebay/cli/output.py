"""Data to stdout, words to stderr; tables for people, JSON for programs."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import sys
import traceback
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from forebay.errors import ForebayError, UnexpectedError

if TYPE_CHECKING:
    from forebay.runtime.results import Result

words = Console(stderr=True)
"""For what is said to a person. Obeys NO_COLOR, and prints no colours when it is not a terminal."""


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


OUTPUT_OPTION = typer.Option(
    "--output", "-o", help="table for people; json (one array) or jsonl (a row a line)"
)


def say_error(error: Exception) -> int:
    """Show an error on stderr, as one of ours; returns the exit code. With -v also where it happened."""
    known = error if isinstance(error, ForebayError) else UnexpectedError(f"{type(error).__name__}: {error}")
    if logging.getLogger().isEnabledFor(logging.INFO):
        words.print("".join(traceback.format_exception(error)), markup=False, highlight=False, end="")
    words.print("[bold red]error[/] ", end="")
    words.print(str(known), markup=False, highlight=False, soft_wrap=True)
    return known.exit_code


def show(result: Result, output: OutputFormat) -> None:
    """Print a result; what a statement did, and notes, go to stderr unless a person asked for a table."""
    if output is OutputFormat.TABLE:
        result.show(console=Console())
        return
    if result.done:
        words.print(result.done, markup=False, highlight=False)
        return
    show_rows(result.rows(), output)
    for note in result.notes:
        words.print(note, markup=False, highlight=False)


def show_rows(rows: Iterable[dict[str, Any]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print(json.dumps(list(rows), default=plain, indent=2))
        return
    for row in rows:
        print(json.dumps(row, default=plain))
    sys.stdout.flush()


def show_items(kind: type[Any], items: list[Any], output: OutputFormat) -> None:
    """Dataclasses, as a table or as JSON."""
    from forebay.runtime.status import table_of

    if output is OutputFormat.TABLE:
        table_of(kind, items).show(console=Console())
    else:
        show_rows([dataclasses.asdict(item) for item in items], output)


def plain(value: Any) -> Any:
    """What JSON does not know: times as ISO 8601, bytes as base64, the rest as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
