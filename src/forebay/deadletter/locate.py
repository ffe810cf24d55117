"""Where in a payload it went wrong: the bytes to put a mark under, if they can be found.

The decoders' messages name a byte or a character where the payload itself is broken; where a value does not
fit its column, they name the column, and its value is looked for in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

TextSpan = tuple[int, int]

_BYTE = re.compile(r"\bat byte (\d+)")
_CHAR = re.compile(r"\(char (\d+)\)")
_SCHEMA_ID = re.compile(r"schema id \d+ is not known")  # which is in bytes 1 to 4 of the frame
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_SPACE = " \t\r\n"


def locate(
    format: str,
    payload: bytes,
    message: str,
    field: str | None,
    columns: Sequence[str],
    options: Mapping[str, str],
) -> TextSpan | None:
    """From and to byte of what is wrong; None if that is not one place."""
    found = _BYTE.search(message)
    if found:
        return _one(int(found[1]), payload)
    found = _CHAR.search(message)
    if found:
        text = payload.decode(errors="replace")
        return _one(len(text[: int(found[1])].encode()), payload)
    if message.startswith("the first byte is"):
        return 0, 1
    if _SCHEMA_ID.match(message) and len(payload) >= 5:
        return 1, 5
    if not field:
        return None
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    span = None
    if format in ("json", "debezium-json"):
        span = _in_json(text, field)
    elif format == "csv":
        span = csv_field(text, field, columns, options)
    return (len(text[: span[0]].encode()), len(text[: span[1]].encode())) if span else None


def _one(at: int, payload: bytes) -> TextSpan:
    """One byte; at the very end there is none left, and the mark goes under the last."""
    at = max(0, min(at, len(payload) - 1))
    return at, at + 1


def _in_json(text: str, path: str) -> TextSpan | None:
    """The value that a path leads to, or the innermost object on the way to one that is not there."""
    scan = json.JSONDecoder().raw_decode
    try:
        at = _skip(text, text.startswith("\ufeff"))
        start, end = at, scan(text, at)[1]
        for name, index, key in _STEP.findall(path):
            inner = _member(text, start, name or key) if name or key else _item(text, start, int(index))
            if inner is None:
                return start, start + 1  # it lacks what the path names
            start, end = inner
    except (ValueError, IndexError, RecursionError):
        return None
    return start, end


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _member(text: str, at: int, wanted: str) -> TextSpan | None:
    scan = json.JSONDecoder().raw_decode
    if text[at] != "{":
        return None
    at = _skip(text, at + 1)
    found = None
    while text[at] != "}":
        name, at = scan(text, at)
        start = _skip(text, _skip(text, at) + 1)
        at = scan(text, start)[1]
        if name == wanted:
            found = start, at
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _item(text: str, at: int, wanted: int) -> TextSpan | None:
    scan = json.JSONDecoder().raw_decode
    if text[at] != "[":
        return None
    at = _skip(text, at + 1)
    number = 0
    while text[at] != "]":
        start, at = at, scan(text, at)[1]
        if number == wanted:
            return start, at
        number += 1
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return None


def csv_field(text: str, field: str, columns: Sequence[str], options: Mapping[str, str]) -> TextSpan | None:
    """From and to character of one column's text; None if there is none."""
    if field not in columns:
        return None
    delimiter = options.get("csv.delimiter", ",").replace("\\t", "\t")
    quote, escape = options.get("csv.quote", '"'), options.get("csv.escape", "")
    start, column, quoted, at = 0, 0, False, 0
    while at < len(text):
        char = text[at]
        if escape and char == escape:
            at += 1
        elif quote and char == quote:
            quoted = not quoted
        elif char == delimiter and not quoted:
            if columns[column] == field:
                break
            start, column = at + 1, column + 1
            if column >= len(columns):
                return None
        at += 1
    end = len(text.rstrip("\r\n")) if at >= len(text) else at
    return (start, max(end, start + 1)) if columns[column] == field else None
