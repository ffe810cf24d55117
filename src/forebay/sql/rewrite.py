"""Edits of a query's own text.

What Spark runs is what the user wrote, but for a few spans: the names of tables, the event-time
windows, aliases added. See `query_text` for why nothing is printed anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.errors import StatementError, UnsupportedSqlError
from forebay.sql.positions import Script, span
from forebay.sql.statements import Select, query_text


@dataclass(frozen=True)
class Edit:
    """Put `text` in place of `[start, end)`."""

    start: int
    end: int
    text: str


def located(query: Any) -> Any:
    """The query with its places in a script; one that was built by hand is printed and parsed first."""
    if "script" in query.meta and "span" in query.meta:
        return query
    from forebay.sql.parse import parse_one  # parse imports this room's nodes; here it is the exception

    statement = parse_one(query_text(query))
    assert isinstance(statement, Select)
    return statement.query


def apply(query: Any, edits: Iterable[Edit]) -> str:
    """The query's text with the edits made; of two at one place, the first given comes first."""
    start, end = query.meta["span"]
    return apply_within(query.meta["script"], start, end, edits)


def apply_within(script: str, start: int, end: int, edits: Iterable[Edit]) -> str:
    """`script[start:end]` with those edits made that lie within it; one that lies within another is not made."""
    parts: list[str] = []
    at = start
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if at <= edit.start and edit.end <= end:
            parts += [script[at : edit.start], edit.text]
            at = edit.end
    parts.append(script[at:end])
    return "".join(parts)


def refuse(query: Any, message: str, node: Any, remedy: str) -> StatementError:
    """UnsupportedSqlError at a node of the query."""
    script = Script(query.meta["written"])
    found = span(node) or query.meta["span"]
    return UnsupportedSqlError(
        message, remedy=remedy, position=script.position(*found), statement=script.text
    )
