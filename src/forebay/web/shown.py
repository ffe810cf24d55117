"""Values as a page and JSON can show them: text is text, bytes are text or hexadecimal digits, and nothing is endless."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from forebay.web.model import ShownColumn, ShownTable

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 20_000  # characters of one value in a table
MOST_ITEMS = 500  # of a list or a map
DEEPEST = 12
EXACT = 2**53  # beyond it a browser's numbers are not exact
PAYLOAD = 256 * 1024  # bytes of a key or a value that are shown
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What would move a cursor, or turn the direction of the text around it."""


def inert(text: str) -> str:
    """Text that no terminal, log or page takes for anything else: control characters are shown as pictures of themselves."""
    clean = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no character
    return _CONTROL.sub(_picture, clean)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"


def text_of(data: bytes | None) -> str | None:
    """UTF-8 as text; None where it is none, and of what is absent."""
    if data is None:
        return None
    try:
        return inert(data[:PAYLOAD].decode("utf-8", "strict" if len(data) <= PAYLOAD else "ignore"))
    except UnicodeDecodeError:
        return None


def hex_of(data: bytes | None) -> str | None:
    return None if data is None else data[:PAYLOAD].hex()


def value_of(value: Any, depth: int = 0) -> Any:
    """As JSON has it. Numbers that a browser would round are text."""
    match value:
        case None | bool():
            return value
        case int():
            return value if -EXACT <= value <= EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return inert(value if len(value) <= LONGEST else value[:LONGEST] + "…")
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            found = text_of(data[:LONGEST])
            return found if found is not None else f"0x{data[:LONGEST].hex()}"
        case Decimal() | timedelta():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, dict):
        items = list(value.items())[:MOST_ITEMS]
        return {inert(str(key))[:LONGEST]: value_of(each, depth + 1) for key, each in items}
    if isinstance(value, list | tuple | set):
        return [value_of(each, depth + 1) for each in list(value)[:MOST_ITEMS]]
    return inert(str(value))[:LONGEST]


def columns_of(schema: pa.Schema) -> list[ShownColumn]:
    """With Spark's names of types, which statements use."""
    from forebay.answers.spark_returns import sql_name

    return [
        ShownColumn(inert(field.name), _type_name(sql_name, field.type), field.nullable) for field in schema
    ]


def _type_name(sql_name: Any, kind: Any) -> str:
    try:
        return str(sql_name(kind))
    except Exception:  # a type that no statement can name
        return str(kind)


def table_of(rows: pa.Table, cut: int = 0) -> ShownTable:
    """All rows of an Arrow table."""
    values = [column.to_pylist() for column in rows.columns]
    made = [[value_of(value) for value in row] for row in zip(*values, strict=True)] if values else []
    return ShownTable(columns_of(rows.schema), made, cut)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], limit: int) -> ShownTable:
    """Of Python values."""
    shown = [[value_of(value) for value in row] for row in rows[:limit]]
    return ShownTable(
        [ShownColumn(inert(name), "STRING") for name in columns], shown, max(0, len(rows) - limit)
    )
