"""The columns that a sample of JSON records suggests, for people who do not want to write them down.

A guess, and shown as one: every column may be NULL, because a sample proves nothing about the rest. A field
that is now this and now that has no type, and is left out and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.formats.json_text import parse_fast
from forebay.formats.refusal import MINUS_ZERO, Number, RefusedError

MAX_COLUMNS = 500
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)")


@dataclass
class Sample:
    """What was seen at one place: the kinds of its values, and what is inside of them."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, Sample] = field(default_factory=dict)
    items: Sample | None = None

    def see(self, value: Any) -> None:
        match value:
            case None:
                return
            case bool():
                self.kinds.add("boolean")
            case int():
                self.kinds.add("integer" if -(2**63) <= value < 2**63 else "number")
            case Number() if value is MINUS_ZERO:
                self.kinds.add("integer")
            case float() | Number():
                self.kinds.add("number")
            case str():
                self.kinds.add("moment" if _MOMENT.fullmatch(value) else "text")
            case dict():
                self.kinds.add("object")
                for name, inner in value.items():
                    self.fields.setdefault(name, Sample()).see(inner)
            case list():
                self.kinds.add("list")
                self.items = self.items or Sample()
                for inner in value:
                    self.items.see(inner)
            case _:
                self.kinds.add("unclear")  # an object that names a field twice


@dataclass(frozen=True)
class Guess:
    """Columns, and what has none: a path and why."""

    columns: pa.Schema
    left_out: tuple[str, ...]
    records: int


def guess(payloads: Iterable[bytes | None]) -> Guess:
    """From all that are JSON objects; the others are not looked at."""
    whole, records = Sample(), 0
    for payload in payloads:
        try:
            value = parse_fast(payload) if payload else None
        except RefusedError:
            continue
        if isinstance(value, dict):
            whole.see(value)
            records += 1
    left_out: list[str] = []
    return Guess(pa.schema(list(_struct(whole, "", left_out))), tuple(left_out), records)


def _struct(sample: Sample, path: str, left_out: list[str]) -> pa.StructType:
    columns: list[pa.Field] = []
    taken: set[str] = set()
    for name, inner in sample.fields.items():
        place = f"{path}{name}"
        kind = _type(inner, place, left_out)
        if name.lower() in taken:
            left_out.append(f"{place} (another field differs from it only in case)")
        elif len(columns) == MAX_COLUMNS:
            left_out.append(f"{place} (there are more than {MAX_COLUMNS})")
        elif kind is not None:
            columns.append(pa.field(name, kind))
            taken.add(name.lower())
    return pa.struct(columns)


def _type(sample: Sample, path: str, left_out: list[str]) -> pa.DataType | None:
    kinds = frozenset(sample.kinds)
    if not kinds:
        return types.STRING  # never anything but null
    if kinds == {"boolean"}:
        return types.BOOLEAN
    if kinds == {"integer"}:
        return types.BIGINT
    if kinds <= {"integer", "number"}:
        return types.DOUBLE
    if kinds == {"moment"}:
        return types.TIMESTAMP
    if kinds <= {"moment", "text"}:
        return types.STRING
    if kinds == {"list"}:
        inner = _type(sample.items or Sample(), f"{path}[]", left_out)
        return None if inner is None else types.array_of(inner)
    if kinds == {"object"}:
        struct = _struct(sample, f"{path}.", left_out)
        if len(struct):
            return struct
        left_out.append(f"{path} (an object without fields)")
        return None
    left_out.append(f"{path} ({' and '.join(sorted(kinds))})")
    return None
