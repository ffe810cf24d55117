"""A repair that computes: in one field of each record, what a pattern matches becomes another text.

`58.65 EUR` becomes 58.65 by the pattern ` EUR$` and an empty text. The patterns are RE2's, which end in a time that grows
with the text alone, whatever somebody types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forebay.deadletter.repair import Digits
from forebay.errors import OptionValueError

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]|\['((?:[^'\\]|\\.)*)'\]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SEPARATOR = re.compile(r"[^\w.\[\]*' -]")
ALL = "*"


@dataclass(frozen=True)
class Replacement:
    """`field` is a path as letters have it: `price`, `customer.name`, `items[0].price`, `items[*].price` for all of them.

    `replacement` may name what a group of the pattern matched: `\\\\1`.
    """

    field: str
    pattern: str
    replacement: str = ""

    @classmethod
    def parse(cls, text: str) -> Replacement:
        """Of `FIELD/PATTERN/TEXT`. The first character that no path of plain names has separates the three."""
        found = _SEPARATOR.search(text)
        parts = text.split(found[0]) if found else []
        if len(parts) not in (3, 4) or parts[3:] not in ([], [""]) or not parts[0] or not parts[1]:
            raise OptionValueError(
                f"'{text}' is no replacement",
                option="replace",
                remedy="write FIELD/PATTERN/TEXT, for example: --replace 'price/ EUR$/'",
            )
        return cls(*parts[:3])


def replacing(wanted: Sequence[Replacement], columns: pa.Schema | None) -> Callable[[Any], Any]:
    """Makes a changed copy of a record. OptionValueError if a pattern or a path is wrong.

    A result is a number where its column is one, or where a number was; true or false where its column is a BOOLEAN; a
    text otherwise. Other values than texts and numbers stay as they are.
    """
    made = [_Replacing(each, columns) for each in wanted]

    def change(record: Any) -> Any:
        for each in made:
            record = each.within(record, 0)
        return record

    return change


class _Replacing:
    def __init__(self, wanted: Replacement, columns: pa.Schema | None) -> None:
        self._wanted = wanted
        self._steps = steps(wanted.field)
        kind = _type_at(columns, self._steps)
        self._numeric = kind is not None and (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )
        self._boolean = kind is not None and pa.types.is_boolean(kind)
        try:
            self._replaced("")
        except pa.ArrowInvalid as error:
            raise OptionValueError(
                f"the pattern for '{wanted.field}' is wrong: {error}",
                option="replace",
                remedy="it is a regular expression: https://github.com/google/re2/wiki/Syntax",
            ) from None

    def within(self, value: Any, step: int) -> Any:
        if step == len(self._steps):
            return self._changed(value)
        name = self._steps[step]
        if isinstance(value, dict) and name != ALL and isinstance(name, str) and name in value:
            return value | {name: self.within(value[name], step + 1)}
        if isinstance(value, list) and name == ALL:
            return [self.within(item, step + 1) for item in value]
        if isinstance(value, dict) and name == ALL:
            return {key: self.within(item, step + 1) for key, item in value.items()}
        if isinstance(value, list) and isinstance(name, int) and name < len(value):
            return [self.within(item, step + 1) if at == name else item for at, item in enumerate(value)]
        return value

    def _changed(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        matches: Any = pc.match_substring_regex(pa.array([str(value)]), pattern=self._wanted.pattern)
        if not matches[0].as_py():
            return value
        made = self._replaced(str(value))
        bare = made.strip()
        if (self._numeric or isinstance(value, Digits)) and _NUMBER.fullmatch(bare):
            return Digits(bare)
        if self._boolean and bare in ("true", "false"):
            return bare == "true"
        return made

    def _replaced(self, text: str) -> str:
        wanted = self._wanted
        found: Any = pc.replace_substring_regex(
            pa.array([text], pa.string()), pattern=wanted.pattern, replacement=wanted.replacement
        )
        return str(found[0].as_py())


def steps(path: str) -> list[str | int]:
    """The names and places that a path is of; `*` for all. OptionValueError if it is none."""
    found: list[str | int] = []
    at = 0
    for step in _STEP.finditer(path):
        if step.start() != at:
            break
        name, index, key = step.groups()
        found.append(name or key or (index if index == ALL else int(index)))
        at = step.end()
    if at != len(path) or not found:
        raise OptionValueError(
            f"'{path}' names no field", option="replace", remedy="for example: price, or items[*].price"
        )
    return found


def _type_at(columns: pa.Schema | None, steps: Sequence[str | int]) -> pa.DataType | None:
    """The type of the column that a path leads to; None if there is none."""
    if columns is None:
        return None
    kind: pa.DataType = pa.struct(list(columns))
    for step in steps:
        if pa.types.is_struct(kind):
            place = kind.get_field_index(str(step))
            if place < 0:
                return None
            kind = kind.field(place).type
        elif pa.types.is_list(kind):
            kind = kind.value_type
        elif pa.types.is_map(kind):
            kind = kind.item_type
        else:
            return None
    return kind
