"""Random Protobuf schemas with columns that can read them, and messages that protobuf's runtime wrote.

A schema is a FileDescriptorProto, made here without protoc: proto2 or proto3, nested, repeated, maps, oneofs,
enums and well-known types, with any numbers. Values are set on messages of protobuf's own classes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from hypothesis import strategies as st

from forebay import column_types as types
from forebay.formats.protobuf_files import complete
from forebay.formats.protobuf_schema import find_message

F = FieldDescriptorProto
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BYTES = st.binary(max_size=6)
NUMBERS = st.one_of(
    st.integers(1, 20), st.integers(1, 18_999), st.sampled_from([2**29 - 1, 15, 16, 2047, 2048])
)
INTEGERS = {
    F.TYPE_INT32: (-(2**31), 2**31 - 1), F.TYPE_SINT32: (-(2**31), 2**31 - 1), F.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    F.TYPE_INT64: (-(2**63), 2**63 - 1), F.TYPE_SINT64: (-(2**63), 2**63 - 1), F.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    F.TYPE_UINT32: (0, 2**32 - 1), F.TYPE_FIXED32: (0, 2**32 - 1),
    F.TYPE_UINT64: (0, 2**64 - 1), F.TYPE_FIXED64: (0, 2**64 - 1),
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A type and a column for it. `good` are values with what is read of them, `loose` any of the type."""

    type: int
    type_name: str
    column: pa.DataType
    good: st.SearchStrategy[tuple[Any, Any]]
    loose: st.SearchStrategy[Any]
    zero: Any = None
    """What is read of a value that is not written."""
    first: int = 0
    """The number of an enum's first value."""
    set: Callable[[Message, str, Any], None] | None = None
    """How a message gets its value; None if by assignment."""


def to_float(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", float(value)))[0]
    return found


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


@st.composite
def integers(draw: st.DrawFn) -> Kind:
    kind = draw(st.sampled_from(sorted(INTEGERS)))
    low, high = INTEGERS[kind]
    every = st.integers(low, high)
    choice = draw(st.integers(0, 6))
    if choice == 0:
        return Kind(kind, "", types.DOUBLE, every.map(lambda v: (v, float(v))), every, 0.0)
    if choice == 1:
        return Kind(kind, "", types.FLOAT, every.map(lambda v: (v, to_float(v))), every, 0.0)
    if choice == 2:
        scale = draw(st.integers(0, 4))
        digits = draw(st.integers(1, 20))
        most = 10**digits - 1
        column = pa.decimal128(digits + scale, scale)
        fits = st.integers(max(low, -most), min(high, most))
        exact = Decimal((0, (1,), -scale))
        return Kind(
            kind,
            "",
            column,
            fits.map(lambda v: (v, Decimal(v).quantize(exact))),
            every,
            Decimal(0).quantize(exact),
        )
    if choice == 3 and abs(high) > 2**32:
        zoned = draw(st.booleans())
        start = datetime(1970, 1, 1, tzinfo=UTC if zoned else None)
        first = -62_135_596_800_000 if low else 0
        moments = st.integers(first, 253_402_300_799_999)
        pairs = moments.map(lambda v: (v, start + timedelta(milliseconds=v)))
        return Kind(kind, "", types.TIMESTAMP if zoned else types.TIMESTAMP_NTZ, pairs, every, start)
    column = draw(st.sampled_from(list(types.BITS)))
    end = 2 ** (types.BITS[column] - 1)
    return Kind(kind, "", column, same(st.integers(max(low, -end), min(high, end - 1))), every, 0)


def reals() -> list[Kind]:
    floats, doubles = st.floats(width=32), st.floats()
    return [
        Kind(F.TYPE_FLOAT, "", types.FLOAT, same(floats), floats, 0.0),
        Kind(F.TYPE_FLOAT, "", types.DOUBLE, same(floats), floats, 0.0),
        Kind(F.TYPE_DOUBLE, "", types.DOUBLE, same(doubles), doubles, 0.0),
    ]


SCALARS = [
    *reals(),
    Kind(F.TYPE_BOOL, "", types.BOOLEAN, same(st.booleans()), st.booleans(), False),
    Kind(F.TYPE_STRING, "", types.STRING, same(TEXT), TEXT, ""),
    Kind(F.TYPE_STRING, "", types.BINARY, TEXT.map(lambda v: (v, v.encode())), TEXT, b""),
    Kind(F.TYPE_BYTES, "", types.BINARY, same(BYTES), BYTES, b""),
    Kind(F.TYPE_BYTES, "", types.STRING, TEXT.map(lambda v: (v.encode(), v)), BYTES, ""),
]
KEYS = [
    Kind(F.TYPE_STRING, "", types.STRING, same(TEXT), TEXT, ""),
    Kind(F.TYPE_BOOL, "", types.BOOLEAN, same(st.booleans()), st.booleans(), False),
    Kind(F.TYPE_SINT64, "", types.BIGINT, same(st.integers(-5, 5)), st.integers(-5, 5), 0),
    Kind(F.TYPE_UINT32, "", types.INT, same(st.integers(0, 5)), st.integers(0, 2**32 - 1), 0),
    Kind(F.TYPE_FIXED64, "", types.BIGINT, same(st.integers(0, 2**63 - 1)), st.integers(0, 2**64 - 1), 0),
]


def assign_moment(message: Message, name: str, value: tuple[int, int]) -> None:
    part = getattr(message, name) if not isinstance(message, _Holder) else message.value
    part.SetInParent()
    part.seconds, part.nanos = value


def assign_value(message: Message, name: str, value: Any) -> None:
    part = getattr(message, name) if not isinstance(message, _Holder) else message.value
    part.SetInParent()
    part.value = value


class _Holder:
    """A message that is not a field but an item of a list or a map."""

    def __init__(self, value: Any) -> None:
        self.value = value


def well_known() -> list[Kind]:
    def moment(seconds: int, nanos: int) -> tuple[Any, Any]:
        read = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
        return (seconds, nanos), read

    def span(micros: int, rest: int) -> tuple[Any, Any]:
        sign = -1 if micros < 0 else 1
        seconds, left = divmod(abs(micros), 10**6)
        return (sign * seconds, sign * (left * 1000 + rest)), micros

    seconds = st.integers(-62_135_596_800, 253_402_300_799)
    anything = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    message, package = F.TYPE_MESSAGE, ".google.protobuf."
    return [
        Kind(message, f"{package}Timestamp", types.TIMESTAMP, st.builds(moment, seconds, st.integers(0, 10**9 - 1)), anything, epoch, set=assign_moment),
        Kind(message, f"{package}Duration", types.BIGINT, st.builds(span, st.integers(-(10**15), 10**15), st.integers(0, 999)), anything, 0, set=assign_moment),
        *(
            Kind(message, f"{package}{name}Value", column, same(values), values, zero, set=assign_value)
            for name, column, values, zero in [
                ("Int64", types.BIGINT, st.integers(-(2**63), 2**63 - 1), 0),
                ("Bool", types.BOOLEAN, st.booleans(), False),
                ("String", types.STRING, TEXT, ""),
                ("Bytes", types.BINARY, BYTES, b""),
                ("Double", types.DOUBLE, st.floats(), 0.0),
            ]
        ),
    ]  # fmt: skip


WELL_KNOWN = well_known()


@dataclass
class Made:
    """A file that grows by messages and enums while a schema is drawn."""

    file: FileDescriptorProto
    names: count = field(default_factory=count)  # type: ignore[type-arg]

    @property
    def proto3(self) -> bool:
        return self.file.syntax == "proto3"


@st.composite
def enums(draw: st.DrawFn, made: Made) -> Kind:
    name = f"E{next(made.names)}"
    numbers = draw(st.lists(st.integers(-3, 300), min_size=1, max_size=5, unique=True))
    numbers = [0, *(n for n in numbers if n)] if made.proto3 else numbers
    enum = made.file.enum_type.add(name=name)
    for number in numbers:
        enum.value.add(name=f"{name}_{number}".replace("-", "m"), number=number)
    named = {value.number: value.name for value in enum.value}
    every = st.integers(-5, 310) if made.proto3 else st.sampled_from(numbers)
    if draw(st.booleans()):
        return Kind(F.TYPE_ENUM, f".t.{name}", types.INT, same(every), every, numbers[0], numbers[0])
    pairs = st.sampled_from(numbers).map(lambda number: (number, named[number]))
    return Kind(F.TYPE_ENUM, f".t.{name}", types.STRING, pairs, every, named[numbers[0]], numbers[0])


@dataclass(frozen=True)
class Field:
    """A field of a message, with or without a column; `fill` sets it, if a value is drawn at all."""

    name: str
    column: pa.Field | None
    good: st.SearchStrategy[tuple[Any, Any]]
    loose: st.SearchStrategy[Any]
    fill: Callable[[Message, Any], None]
    absent: Any
    always: bool = False
    oneof: str = ""


ABSENT = object()


def _put(kind: Kind, name: str) -> Callable[[Message, Any], None]:
    if kind.set is None:
        return lambda message, value: setattr(message, name, value)
    return lambda message, value: kind.set(message, name, value)  # type: ignore[misc]


@st.composite
def fields(draw: st.DrawFn, made: Made, message: DescriptorProto, name: str, depth: int) -> Field:
    kinds = [integers(), st.sampled_from(SCALARS), st.sampled_from(WELL_KNOWN), enums(made)]
    if depth:
        kinds.append(messages(made, depth - 1))
    kind = draw(st.one_of(kinds))
    used = {each.number for each in message.field}
    number = draw(NUMBERS.filter(lambda n: n not in used and not 19_000 <= n < 20_000))
    added = message.field.add(name=name, number=number, type=kind.type, label=F.LABEL_OPTIONAL)
    if kind.type_name:
        added.type_name = kind.type_name
    shape = draw(st.sampled_from(["one", "one", "one", "oneof", "repeated", "map"]))
    has_column = draw(st.integers(0, 4)) > 0
    if shape == "repeated":
        return _repeated(draw, made, added, kind, has_column)
    if shape == "map" and kind.first == 0:  # the first number of an enum in a map is 0, by the specification
        return _map(draw, message, added, kind, has_column)
    absent: Any = None
    oneof = ""
    is_message = kind.type == F.TYPE_MESSAGE
    if shape == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        added.oneof_index, oneof = 0, "choice"
    elif made.proto3 and not is_message:
        absent = kind.zero
    required = not made.proto3 and not oneof and has_column and draw(st.integers(0, 5)) == 0
    if required:
        added.label = F.LABEL_REQUIRED
    column = pa.field(name, kind.column, absent is None) if has_column else None
    return Field(name, column, kind.good, kind.loose, _put(kind, name), absent, required, oneof)


def _repeated(draw: st.DrawFn, made: Made, added: F, kind: Kind, has_column: bool) -> Field:
    added.label = F.LABEL_REPEATED
    if kind.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE):
        added.options.packed = draw(st.booleans())
    name = added.name

    def fill(message: Message, values: list[Any]) -> None:
        for value in values:
            if kind.set is None:
                getattr(message, name).append(value)
            else:
                kind.set(_Holder(getattr(message, name).add()), name, value)  # type: ignore[arg-type]

    pairs = st.lists(kind.good, max_size=3).map(lambda items: ([i[0] for i in items], [i[1] for i in items]))
    column = pa.field(name, types.array_of(kind.column, draw(st.booleans())), False) if has_column else None
    return Field(name, column, pairs, st.lists(kind.loose, max_size=3), fill, [])


def _map(draw: st.DrawFn, message: DescriptorProto, added: F, kind: Kind, has_column: bool) -> Field:
    key = draw(st.sampled_from(KEYS))
    name = added.name
    entry = message.nested_type.add(name=f"{name.upper()}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=key.type, label=F.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, type=kind.type, label=F.LABEL_OPTIONAL)
    if kind.type_name:
        value.type_name = kind.type_name
    entry.name = f"{name.upper()}Entry"
    added.type, added.label = F.TYPE_MESSAGE, F.LABEL_REPEATED
    added.type_name = f"{entry.name}"

    def fill(target: Message, values: dict[Any, Any]) -> None:
        for each, given in values.items():
            if kind.set is None:
                getattr(target, name)[each] = given
            else:
                kind.set(_Holder(getattr(target, name)[each]), name, given)  # type: ignore[arg-type]

    pairs = st.dictionaries(key.good.map(lambda pair: pair[0]), kind.good, max_size=3).map(
        lambda found: (
            {each: pair[0] for each, pair in found.items()},
            sorted(((each, pair[1]) for each, pair in found.items()), key=repr),
        )
    )
    column = (
        pa.field(name, types.map_of(key.column, kind.column, draw(st.booleans())), False)
        if has_column
        else None
    )
    return Field(name, column, pairs, st.dictionaries(key.loose, kind.loose, max_size=3), fill, [])


@st.composite
def messages(draw: st.DrawFn, made: Made, depth: int) -> Kind:
    """Fields in any order; at least one with a column, so that the struct has one."""
    name = f"M{next(made.names)}"
    message = made.file.message_type.add(name=name)
    place = len(made.file.message_type) - 1
    drawn = [
        draw(fields(made, made.file.message_type[place], f"f{at}", depth))
        for at in range(draw(st.integers(1, 5)))
    ]
    declared = [each for each in drawn if each.column is not None]
    if not declared:
        drawn.append(_plain(made.file.message_type[place], made.proto3))
        declared = drawn[-1:]
    columns = draw(st.permutations([each.column for each in declared]))
    del message

    def assign(target: Message, field_name: str, values: dict[str, Any]) -> None:
        part = target.value if isinstance(target, _Holder) else getattr(target, field_name)
        part.SetInParent()
        fill(part, values)

    def fill(part: Message, values: dict[str, Any]) -> None:
        for each in drawn:
            if values[each.name] is not ABSENT:
                each.fill(part, values[each.name])

    def read(pairs: dict[str, Any]) -> tuple[Any, Any]:
        chosen = [each.name for each in drawn if each.oneof and pairs[each.name] is not ABSENT]
        found: dict[str, Any] = {}
        for each in drawn:
            given = pairs[each.name]
            unset = given is ABSENT or (each.oneof and each.name != chosen[-1])
            found[each.name] = each.absent if unset else given[1]
        written = {key: given if given is ABSENT else given[0] for key, given in pairs.items()}
        return written, {column.name: found[column.name] for column in columns}

    good = st.fixed_dictionaries({each.name: _maybe(each.good, each.always) for each in drawn}).map(read)
    loose = st.fixed_dictionaries({each.name: _maybe(each.loose, each.always) for each in drawn})
    zero = {each.name: each.absent for each in declared}
    kind = Kind(F.TYPE_MESSAGE, f".t.{name}", pa.struct(columns), good, loose, zero, set=assign)
    object.__setattr__(kind, "fill", fill)
    return kind


def _plain(message: DescriptorProto, proto3: bool) -> Field:
    used = {each.number for each in message.field}
    number = next(n for n in count(1) if n not in used)
    message.field.add(name="plain", number=number, type=F.TYPE_SINT32, label=F.LABEL_OPTIONAL)
    values = st.integers(-5, 5)
    column = pa.field("plain", types.INT, True)
    put: Callable[[Message, Any], None] = lambda target, value: setattr(target, "plain", value)  # noqa: E731
    return Field("plain", column, same(values), values, put, 0 if proto3 else None)


def _maybe(values: st.SearchStrategy[Any], always: bool) -> st.SearchStrategy[Any]:
    return values if always else st.one_of(st.just(ABSENT), values)


@dataclass(frozen=True)
class Case:
    """A whole schema, its columns, and messages of it."""

    files: bytes
    kind: Kind

    @property
    def columns(self) -> pa.Schema:
        assert isinstance(self.kind.column, pa.StructType)
        return pa.schema(list(self.kind.column))

    @property
    def options(self) -> dict[str, str]:
        return {
            "protobuf.descriptor": base64.b64encode(self.files).decode(),
            "protobuf.message": self.kind.type_name.removeprefix("."),
        }

    def write(self, values: dict[str, Any]) -> bytes:
        message = message_factory.GetMessageClass(find_message(self.files, self.options))()
        self.kind.fill(message, values)  # type: ignore[attr-defined]
        serialized: bytes = message.SerializePartialToString()
        return serialized


@st.composite
def tables(draw: st.DrawFn) -> Case:
    made = Made(
        FileDescriptorProto(name="t.proto", package="t", syntax=draw(st.sampled_from(["proto2", "proto3"])))
    )
    made.file.dependency.extend(
        f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")
    )
    kind = draw(messages(made, draw(st.integers(0, 2))))
    return Case(complete([made.file]), kind)


def sort_maps(value: Any) -> Any:
    """Maps in one order: the runtime writes theirs in any."""
    match value:
        case dict():
            return {key: sort_maps(item) for key, item in value.items()}
        case [(_, _), *_]:
            return sorted(((key, sort_maps(item)) for key, item in value), key=repr)
        case list():
            return [sort_maps(item) for item in value]
        case _:
            return value


def damage(payload: bytes) -> st.SearchStrategy[bytes]:
    """Truncated, with other bytes, or with bytes that mean something: tags, lengths, ends of groups."""
    telling = [
        b"\x00",
        b"\x08",
        b"\x0a\x00",
        b"\x0b",
        b"\x0c",
        b"\x0d",
        b"\x80",
        b"\xff",
        b"\xff" * 9 + b"\x01",
        b"\xff" * 10,
    ]
    splice = st.one_of(st.just(b""), st.sampled_from(telling), st.binary(max_size=3))
    places = st.integers(0, len(payload))
    return st.one_of(
        st.builds(lambda end: payload[:end], places),
        st.builds(lambda at, cut, new: payload[:at] + new + payload[at + cut :], places, st.integers(0, 3), splice),
    )  # fmt: skip
