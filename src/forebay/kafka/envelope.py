"""A record as a line of JSON: what `forebay consume -o jsonl` prints and `forebay produce --envelope` takes.

    {"key": "k", "value": "text", "headers": {"h": "text"}, "partition": 0, "timestamp": 1768471200000}

Bytes that are UTF-8 are text; others are base64, under `value_base64` and `key_base64`. `value` may also be JSON that is
not text, which is written compactly. null is null, in a value a tombstone. Headers are an object, or a list of pairs
where a name repeats; a header that is not text is `{"base64": "…"}`. `timestamp` is in milliseconds. What says where a
record came from (`topic`, `offset`) and what it decodes to (`row`, `error`) is left aside when it is taken back.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from forebay.errors import OptionValueError

Headers = tuple[tuple[str, bytes | None], ...]
_TAKEN = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
_ASIDE = ("topic", "offset", "row", "error")
_EXAMPLE = '{"key": "k", "value": {"id": 1}, "headers": {"h": "x"}}'


@dataclass(frozen=True)
class Envelope:
    """A record to be written. Without a partition the key decides, without a timestamp the clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Incoming(Protocol):
    """As much of a message of the client library as is shown."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...


def to_json(message: Incoming) -> dict[str, Any]:
    """All of a record, byte for byte."""
    kind, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms if kind else None,
        **_named("key", message.key()),
        **_named("value", message.value()),
        "headers": _headers_to_json(message.headers() or ()),
    }


def from_json(line: str) -> Envelope:
    """The record of a line; OptionValueError says what is wrong with it."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise _wrong(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise _wrong(f"an object is wanted, and not {type(given).__name__}")
    for name in given:
        if name not in (*_TAKEN, *_ASIDE):
            near = difflib.get_close_matches(name, _TAKEN, 1)
            raise _wrong(
                f"there is no '{name}' in a record" + (f"; did you mean '{near[0]}'?" if near else "")
            )
    if "value" not in given and "value_base64" not in given:
        raise _wrong("'value' is missing; null is a tombstone")
    return Envelope(
        _bytes_of(given, "value"),
        _bytes_of(given, "key"),
        _headers_of(given.get("headers")),
        _number(given, "partition"),
        _number(given, "timestamp"),
    )


def payload(value: Any) -> bytes | None:
    """A JSON value as bytes: text is itself, null is nothing, the rest is JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def text_of(data: bytes) -> str | None:
    """The bytes as text; None where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _named(name: str, data: bytes | None) -> dict[str, Any]:
    text = None if data is None else text_of(data)
    if data is not None and text is None:
        return {f"{name}_base64": base64.b64encode(data).decode()}
    return {name: text}


def _headers_to_json(headers: Sequence[tuple[str, bytes | None]]) -> Any:
    pairs = []
    for name, data in headers:
        text = None if data is None else text_of(data)
        binary = data is not None and text is None
        pairs.append((name, {"base64": base64.b64encode(data or b"").decode()} if binary else text))
    names = {name for name, _ in pairs}
    return dict(pairs) if len(names) == len(pairs) else [list(pair) for pair in pairs]


def _bytes_of(given: dict[str, Any], name: str) -> bytes | None:
    coded = f"{name}_base64"
    if coded not in given:
        return payload(given.get(name))
    if name in given:
        raise _wrong(f"'{name}' and '{coded}' exclude each other")
    return _decoded(given[coded], f"'{coded}'")


def _decoded(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _wrong(f"{what} is not base64") from None


def _headers_of(given: Any) -> Headers:
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise _wrong("'headers' is an object, or a list of pairs")
    found: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise _wrong(f"a header's name is text, and not {name!r}")
        if isinstance(value, dict) and set(value) == {"base64"}:
            found.append((name, _decoded(value["base64"], f"header '{name}'")))
        elif value is None or isinstance(value, str):
            found.append((name, payload(value)))
        else:
            raise _wrong(f'header \'{name}\' is text, null or {{"base64": "…"}}, and not {value!r}')
    return tuple(found)


def _number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(f"'{name}' is a whole number, and not {value!r}")
    return value


def _wrong(why: str) -> OptionValueError:
    return OptionValueError(why, option="envelope", remedy=f"a record is written like {_EXAMPLE}")
