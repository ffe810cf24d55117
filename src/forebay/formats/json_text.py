"""JSON text to Python values, by two parsers that agree.

`parse_exact` (the standard library's) defines what a payload means. `parse_fast` (orjson) gives the same
wherever no digit counts that a double has not: what orjson refuses, or may have read differently, is read again exactly.

Numbers with a fraction or an exponent, and integers of absurd length, come as `Number`, the text itself
(from orjson as floats); `-0` comes as `MINUS_ZERO`. An object that names a field twice comes as `Ambiguous`, to be refused only if that
field is a column.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from forebay.formats.refusal import MINUS_ZERO, Number, malformed
from forebay.formats.values import Ambiguous

MAX_DEPTH = 256
"""Nesting that both parsers take on any stack that Spark gives us; beyond it a payload is malformed."""

_LONGEST_INTEGER = 400
"""Digits. No column type reaches that far (a DOUBLE has 309), and int() takes quadratic time."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CONSTANT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|(NaN|-?Infinity)', re.DOTALL)
_NAME_ENDS = (b'":', b" :", b"\t:", b"\r:", b"\n:")
_MINUS_ZERO = re.compile(rb"[\s:,\[]-0[\s,}\]]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_fast(payload: bytes) -> Any:
    """The payload's value, floats as floats. RefusedError if it is not JSON."""
    if _too_deep(payload):
        raise malformed(f"nested deeper than {MAX_DEPTH} levels")
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        # Malformed, or what orjson alone refuses: 1e400 in a field that nobody reads.
        return parse_exact(payload)
    if type(value) is dict and not _surely_unique(payload, value):
        return parse_exact(payload)
    if b"-0" in payload and _MINUS_ZERO.search(payload):  # maybe in a text; orjson reads it as 0
        return parse_exact(payload)
    return value


def parse_exact(payload: bytes) -> Any:
    """The payload's value, no digit lost. RefusedError if it is not JSON."""
    if _too_deep(payload):
        raise malformed(f"nested deeper than {MAX_DEPTH} levels")
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"invalid UTF-8 at byte {error.start}") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise malformed(f"not JSON: {error}") from None
    except _ConstantError:
        place = next(match.start(1) for match in _CONSTANT.finditer(text) if match[1])
        raise malformed(f"not JSON: NaN or Infinity is no number (char {place})") from None
    except RecursionError:
        raise malformed("nested too deeply") from None
    if _SURROGATE.search(text):
        _check_surrogates(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Ambiguous(pairs)


def _integer(text: str) -> int | Number:
    if text == "-0":
        return MINUS_ZERO
    return int(text) if len(text) <= _LONGEST_INTEGER else Number(text)


class _ConstantError(Exception):
    pass


def _constant(_: str) -> NoReturn:
    raise _ConstantError


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=_integer, parse_constant=_constant
)


def _too_deep(payload: bytes) -> bool:
    if len(payload) <= MAX_DEPTH or payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for byte in _STRING.sub(b"", payload).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _surely_unique(payload: bytes, value: dict[str, Any]) -> bool:
    """Whether no object in the payload can name a field twice, from counts alone.

    A colon after a name has a quote or white space before it, so the count of these pairs is at least the
    number of names written; if as many names were kept, none was dropped.
    """
    if payload.count(b":") == len(value):  # flat, and no colon in a string: most records end here
        return True
    written = sum(map(payload.count, _NAME_ENDS))
    return written == len(value) or written == _names(value)


def _names(value: Any) -> int:
    total = 0
    pending = [value]
    while pending:
        part = pending.pop()
        if type(part) is dict:
            total += len(part)
            pending.extend(part.values())
        elif type(part) is list:
            pending.extend(part)
    return total


def _check_surrogates(value: Any) -> None:
    """Half a surrogate pair is no character: Arrow, Parquet and UTF-8 cannot hold it."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending.extend(part.keys())
            pending.extend(part.values())
        elif type(part) is list:
            pending.extend(part)
        elif type(part) is str:
            try:
                part.encode()
            except UnicodeEncodeError:
                raise malformed("a string holds half a surrogate pair") from None
