"""What a record of the blackboard's topics may be. Anybody who may write to a topic can write anything there.

ArtifactError for whatever is not allowed, and nothing else is raised, however a record is made: one record must not stop
whoever reads the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import orjson

from forebay.errors import ArtifactError

LEVELS = 256  # of objects and lists inside each other, as in the payloads of sources
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HALF_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Check = Callable[[Any], bool]


class DocumentShape:
    """A JSON object of these fields and no others. Those with a default may be missing, and those that are optional."""

    def __init__(
        self,
        what: str,
        fields: Mapping[str, Check],
        *,
        defaults: Mapping[str, Any] | None = None,
        optional: Mapping[str, Check] | None = None,
    ) -> None:
        self._what = what
        self._fields = {**fields, **(optional or {})}
        self._required = fields.keys()
        self._defaults = dict(defaults or {})

    def checked(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise ArtifactError(f"a record is no {self._what}: it is no JSON object")
        document = {**self._defaults, **found}
        for name, value in document.items():
            check = self._fields.get(name)
            if check is None:
                raise ArtifactError(f"a record is no {self._what}: it has an unknown field {name[:100]!r}")
            if not check(value):
                raise ArtifactError(f"a record is no {self._what}: '{name}' is wrong")
        for name in self._required - document.keys():
            raise ArtifactError(f"a record is no {self._what}: '{name}' is missing")
        return document


# -- fields ------------------------------------------------------------------------------------------


def text(value: Any) -> bool:
    return isinstance(value, str)


def text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def whole(value: Any) -> bool:
    return type(value) is int


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


def uuid(value: Any) -> bool:
    """As it is written everywhere: an artifact is looked up by this text."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except (ValueError, OverflowError):
        return False


# -- JSON --------------------------------------------------------------------------------------------


def parse(data: bytes) -> Any:
    """Exact: an integer of any size is what it was."""
    try:
        written = data.decode()
        found = _DECODER.decode(written)
        if _HALF_SURROGATE.search(written):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"a record is no JSON: {_reason(error)}") from None
    return _shallow(data, found)


def parse_quickly(data: bytes) -> Any:
    """For whoever does not look at the payload: numbers in it may have lost digits."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return parse(data)  # malformed, or a number that orjson alone refuses
    return _shallow(data, found)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has half of a surrogate pair, which is no text"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return f"it has more than {LEVELS} levels"
    return str(error)


def _shallow(data: bytes, found: Any) -> Any:
    """What is nested deeper could be read here and not elsewhere, where the stack is deeper already."""
    if data.count(b"{") + data.count(b"[") > LEVELS:  # else it cannot be, which is quick to see
        level, inside = 0, [found]
        while inside:
            level += 1
            inside = [
                each
                for outer in inside
                for each in (outer.values() if isinstance(outer, dict) else outer)
                if isinstance(each, dict | list)
            ]
            if level > LEVELS:
                raise ArtifactError(f"a record is no JSON: it has more than {LEVELS} levels")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
