"""The registry's frame, in the plain and in the native decoder: same ids, same refusals, nothing kept in vain."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.bits import kinds, rows_in_bits

from forebay import column_types as types
from forebay.formats.arrow_batches import decode_each
from forebay.formats.avro_plan import compile_plan
from forebay.formats.contract import RefusalKind
from forebay.formats.framed import Lesson
from forebay.formats.framing import HEADER, schema_id
from forebay.formats.json_format import JsonDecoder
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_schema import registered_files
from forebay.formats.refusal import RefusedError

native = pytest.importorskip("forebay_native", reason="the native decoder is not built (make setup)")
COLUMNS = pa.schema([pa.field("x", types.BIGINT)])
LESSONS = {
    1: Lesson({}),
    2**32 - 1: Lesson({}),
    7: Lesson(None, RefusalKind.UNKNOWN_SCHEMA_ID, "schema id 7 is not known"),
    9: Lesson(None, RefusalKind.SCHEMA_MISMATCH, "schema id 9 does not fit"),
}
FRAMES = st.one_of(
    st.binary(max_size=8),
    st.builds(
        lambda number, rest: b"\0" + number.to_bytes(4, "big") + rest,
        st.sampled_from(sorted(LESSONS)),
        st.sampled_from([b'{"x": 1}', b"[1]", b"", b'{"x": 1}}', b'{"x": "1"}', b"\0\0\0\0\1{}"]),
    ),
)


def header(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def taught(format: str = "json") -> Any:
    return native.Decoder(format, COLUMNS, {"framed": "true"})


@given(st.lists(st.one_of(st.none(), FRAMES), max_size=20))
@example([b"\0\0\0\0", b"\0", b"\1\0\0\0\1{}", None, b""])
def test_both_find_the_same_ids_and_refuse_the_same_payloads(values: list[bytes | None]) -> None:
    plain = JsonDecoder(COLUMNS, {})
    known = dict(LESSONS)
    unknown = Lesson(None, RefusalKind.UNKNOWN_SCHEMA_ID, "schema id … is not known")

    def row(payload: bytes | None) -> list[Any]:
        lesson = known.setdefault(schema_id(payload), unknown)
        assert payload is not None
        if lesson.plan is None:
            raise RefusedError(RefusalKind(lesson.kind), lesson.message)
        return plain.row(payload[HEADER:])

    expected = decode_each(values, plain.schema, row)
    made = taught()
    found = made.decode(values)
    while (wanted := made.wanted) is not None:
        assert (pa.record_batch(found.batch).num_rows, found.bad) == (0, [])  # nothing is kept in vain
        made.learn(wanted, *known[schema_id(wanted)].native)
        found = made.decode(values)
    assert rows_in_bits(pa.record_batch(found.batch)) == rows_in_bits(expected.batch)
    assert kinds(found.bad) == kinds(expected.bad)
    for bad, record in zip(found.bad, expected.bad, strict=True):
        framed = bad.kind == "UnknownSchemaId" or "byte is" in bad.message or "schema id" in bad.message
        assert not framed or bad.message == record.message


def test_an_id_can_be_learned_again_and_each_has_its_own_plan() -> None:
    made = taught("avro")
    for number, kind in ((1, "int"), (2, "long")):
        fields = [{"name": "y", "type": "string"}] if number == 2 else []
        schema = {"type": "record", "name": "R", "fields": [*fields, {"name": "x", "type": kind}]}
        made.learn(header(number), *Lesson(compile_plan(json.dumps(schema), COLUMNS)).native)
    values = [b"\0\0\0\0\1\2", b"\0\0\0\0\2\2y\4", b"\0\0\0\0\1\6"]
    found = made.decode(values)
    assert (pa.record_batch(found.batch).to_pylist(), found.bad) == ([{"x": 1}, {"x": 2}, {"x": 3}], [])
    made.learn(header(2), None, "SchemaMismatch", "no longer")
    found = made.decode(values)
    assert pa.record_batch(found.batch).to_pylist() == [{"x": 1}, {"x": 3}]
    assert [(bad.index, bad.kind, bad.message) for bad in found.bad] == [(1, "SchemaMismatch", "no longer")]


def test_what_cannot_be_learned_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"avro\.plan"):
        taught("avro").learn(header(1), "{}")
    with pytest.raises(ValueError, match="no kind"):
        taught().learn(header(1), None, "Nonsense", "")
    with pytest.raises(ValueError, match="ends inside of the schema id"):
        taught().learn(b"\0\0", "{}")
    with pytest.raises(ValueError, match="name no schema"):
        native.Decoder("json", COLUMNS, {}).learn(header(1), "{}")


SCHEMAS = {
    1: 'syntax = "proto3"; message A { int64 x = 1; message In { int64 x = 2; } } message B { int64 x = 3; }',
    2: 'syntax = "proto3"; message C { string x = 1; } message D { string y = 1; int64 x = 2; }',
}


def resolve(number: int) -> bytes:
    return registered_files(SCHEMAS[number], {})


PROTOBUF_FRAMES = st.one_of(
    st.binary(max_size=9),
    st.builds(
        lambda number, way, rest: header(number) + way + rest,
        st.sampled_from([1, 2, 3, 2**31]),
        st.sampled_from(
            [b"\0", b"\2\0", b"\2\2", b"\4\0\0", b"\4\2\0", b"\2\4", b"\1", b"\2\1", b"\x80", b"\x42", b"",
             b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x10", b"\xff" * 5, b"\2\xff\xff\xff\xff\x0f", b"\x82\0\0", b"\x40" + b"\0" * 32]
        ),
        st.sampled_from([b"", b"\x08\x05", b"\x10\x05", b"\x18\x05", b"\x0a\x01a", b"\x08", b"\x08\x05\x10\x06"]),
    ),
)  # fmt: skip


@given(st.lists(st.one_of(st.none(), PROTOBUF_FRAMES), max_size=20), st.sampled_from(["", "A", "D"]))
def test_both_find_the_same_protobuf_messages(values: list[bytes | None], message: str) -> None:
    plain = ProtobufDecoder(COLUMNS, {"protobuf.message": message}, resolve)
    expected = plain.decode(values)
    made = native.Decoder("protobuf", plain.schema, plain.native_options)
    found = made.decode(values)
    while (wanted := made.wanted) is not None:
        made.learn(wanted, *plain.lesson(wanted))
        found = made.decode(values)
    assert rows_in_bits(pa.record_batch(found.batch)) == rows_in_bits(expected.batch)
    assert kinds(found.bad) == kinds(expected.bad)
    assert [bad.message for bad in found.bad] == [bad.message for bad in expected.bad]
