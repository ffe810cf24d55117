"""Values as people read them: in a table, in a notebook, in a line."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text(value: Any) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping | list):
        return json.dumps(value, default=str)
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ") if hasattr(value, "hour") else value.isoformat()).replace(
            "+00:00", ""
        )
    return str(value)


def html_table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table for a notebook; whatever the values hold, it is shown and not interpreted."""
    names = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str]) -> str:
    """Lines of text for a notebook, shown and not interpreted."""
    return "<br>".join(html.escape(line) for line in lines)


def counted(count: int, noun: str) -> str:
    """`1 letter`, `2,000 letters`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
