"""The plain and the native Protobuf decoder on the same input: same rows, same refusals."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.bits import agreed
from tests.property.protobuf_cases import Case, damage, tables
from tests.protobuf_support import columns, options, sized, tag, varint

from forebay.formats.protobuf_compile import compile_texts
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.kafka.native_reader import NativeReader
from forebay.kafka.options import KAFKA
from forebay.kafka.rows import RowDecoder

native = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")

EVERY = """
syntax = "proto2"; package every;
import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto"; import "google/protobuf/any.proto";
enum E { A = 0; B = 7; }
message P { optional sint32 y = 1; repeated P ps = 2; optional string s = 3; required bool b = 4; oneof c { P cp = 5; string cs = 6; P ch = 7; } }
message M {
  optional int32 i = 1 [default = -9]; optional uint64 u = 2; repeated sint64 z = 3; optional E e = 4 [default = B];
  repeated E es = 5; optional P p = 6; repeated P ps = 7; map<string, P> mp = 8; map<sint32, E> me = 9;
  optional google.protobuf.Timestamp t = 10; optional google.protobuf.Duration d = 11;
  optional google.protobuf.Struct js = 12; optional google.protobuf.Value jv = 13; optional google.protobuf.ListValue jl = 14;
  optional google.protobuf.Int32Value w = 15; optional google.protobuf.Any a = 300;
  repeated group G = 301 { optional fixed32 x = 1; optional P p = 2; } optional float f = 302; repeated double r = 303;
  map<bool, google.protobuf.Value> mb = 304; optional bytes by = 305; optional string st = 306 [default = "é"]; optional bool bo = 307;
}
"""
PART = "STRUCT<y: INT, s: STRING, b: BOOLEAN, cp: STRUCT<y: SMALLINT>, cs: STRING>"
COLUMNS = f"""by STRING, i INT, u BIGINT, z ARRAY<INT>, e STRING, es ARRAY<STRING>, p {PART}, ps ARRAY<{PART}>,
  mp MAP<STRING, {PART}>, me MAP<TINYINT, STRING>, t TIMESTAMP, d BIGINT, js STRING, jv STRING, jl STRING, w SMALLINT,
  a BINARY, g ARRAY<STRUCT<x: DECIMAL(9,2), p: STRUCT<y: INT NOT NULL>>>, f DOUBLE, r ARRAY<DOUBLE>,
  mb MAP<BOOLEAN, STRING>, st BINARY, bo BOOLEAN"""


def every() -> tuple[pa.Schema, dict[str, str]]:
    files = compile_texts({"every.proto": EVERY}, "every.proto")
    given = {"protobuf.descriptor": base64.b64encode(files).decode(), "protobuf.message": "M"}
    return columns(COLUMNS), given


def check_agreement(plain: ProtobufDecoder, values: Sequence[bytes | None]) -> list[Any]:
    """The refusals, once both decoders have agreed on them and on the rows."""
    expected = plain.decode(values)
    made = native.Decoder("protobuf", plain.schema, plain.native_options)
    bad = agreed(made, expected, values)
    for item, record in zip(bad, expected.bad, strict=True):
        # In the same words; only a map's key in the path is quoted differently.
        assert "['" in record.message or '["' in record.message or item.message == record.message
    return bad


@given(tables(), st.data())
def test_both_read_the_same_messages(case: Case, data: st.DataObject) -> None:
    good = [case.write(pair[0]) for pair in data.draw(st.lists(case.kind.good, max_size=3))]
    loose = [case.write(values) for values in data.draw(st.lists(case.kind.loose, max_size=3))]
    plain = ProtobufDecoder(case.columns, case.options)
    bad = check_agreement(plain, good + loose + [first + second for first in good for second in loose])
    assert all(item.index >= len(good) for item in bad)


@given(tables(), st.data())
def test_both_refuse_the_same_damage(case: Case, data: st.DataObject) -> None:
    payloads = [case.write(values) for values in data.draw(st.lists(case.kind.loose, min_size=1, max_size=3))]
    damaged: list[bytes | None] = [data.draw(damage(payload)) for payload in payloads for _ in range(3)]
    random = data.draw(st.lists(st.binary(max_size=30), max_size=5))
    check_agreement(ProtobufDecoder(case.columns, case.options), [None, b"", *damaged, *payloads, *random])


def test_both_keep_the_bits_of_every_kind_of_float() -> None:
    """Both zeros, the infinities, and NaNs that are quiet; what a signalling one becomes is the processor's affair."""
    schema, given = columns("f FLOAT, d DOUBLE"), options("message M { float f = 1; double d = 2; }")
    singles = ["00000080", "00000000", "0000807f", "000080ff", "0000c07f", "0000c0ff", "0100c07f", "01000080"]
    doubles = [
        "0000000000000080",
        "000000000000f87f",
        "000000000000f8ff",
        "010000000000f87f",
        "0100000000000080",
    ]
    payloads = [tag(1, 5) + bytes.fromhex(text) for text in singles]
    payloads += [tag(2, 1) + bytes.fromhex(text) for text in doubles]
    assert check_agreement(ProtobufDecoder(schema, given), payloads) == []


def test_both_take_every_bool_but_zero_for_true() -> None:
    schema = columns("a BOOLEAN, r ARRAY<BOOLEAN>, m MAP<BOOLEAN, INT>, w BOOLEAN, v STRING")
    body = "bool a = 1; repeated bool r = 2; map<bool, int32> m = 3; google.protobuf.BoolValue w = 4;"
    given = options(f"message M {{ {body} google.protobuf.Value v = 5; }}")
    numbers = [varint(number) for number in (0, 1, 2, 127, 128, 2**32, 2**63, 2**64 - 1)] + [b"\x80\x00"]
    payloads = [tag(1, 0) + number for number in numbers]
    payloads += [sized(2, b"".join(numbers)), b"".join(tag(2, 0) + number for number in numbers)]
    payloads += [b"".join(sized(3, tag(1, 0) + number + b"\x10\x05") for number in numbers)]
    payloads += [sized(4, tag(1, 0) + number) for number in numbers]
    payloads += [sized(5, tag(4, 0) + number) for number in numbers]
    plain = ProtobufDecoder(schema, given)
    assert check_agreement(plain, payloads) == []
    found = plain.decode(payloads).batch.to_pylist()
    truth = [False, *[True] * 7, False]
    assert [row["a"] for row in found[:9]] == truth
    assert [row["r"] for row in found[9:11]] == [truth, truth]
    assert sorted(found[11]["m"]) == [(False, 5), (True, 5)]
    assert [row["w"] for row in found[12:21]] == truth
    assert [row["v"] for row in found[21:]] == ["true" if each else "false" for each in truth]


NUMBERS = st.sampled_from(
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 300, 301, 302, 303, 304, 305, 306, 307]
)


def contents() -> st.SearchStrategy[bytes]:
    """Bytes that are mostly a message: fields with known numbers, in any wire type, inside of each other."""

    def inside(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        small = st.integers(1, 7)
        number = st.one_of(small, small, NUMBERS)
        whole = st.one_of(
            st.builds(
                lambda n, v: tag(n, 0) + varint(v),
                number,
                st.one_of(st.integers(0, 8), st.integers(0, 2**64 - 1)),
            ),
            st.builds(lambda n, v: tag(n, 1) + v, number, st.binary(min_size=8, max_size=8)),
            st.builds(lambda n, v: tag(n, 5) + v, number, st.binary(min_size=4, max_size=4)),
            st.builds(sized, number, st.one_of(st.binary(max_size=6), inner)),
            st.builds(sized, number, inner),
            st.builds(lambda n, v: tag(n, 3) + v + tag(n, 4), number, inner),
        )
        return st.lists(st.one_of(whole, whole, whole, st.binary(max_size=2)), max_size=5).map(b"".join)

    return st.recursive(st.just(b""), inside, max_leaves=12)


@given(st.lists(st.tuples(NUMBERS, contents()), max_size=4))
@example([(13, sized(6, sized(1, tag(1, 0) + b"\x00")) + sized(6, sized(1, tag(1, 0) + b"\x00")))])
def test_both_make_the_same_of_anything_that_looks_like_a_message(parts: list[tuple[int, bytes]]) -> None:
    schema, given = _EVERY
    payloads: list[bytes | None] = [sized(number, content) for number, content in parts]
    payloads += [content for _, content in parts]
    payloads.append(b"".join(payload for payload in payloads if payload))
    check_agreement(ProtobufDecoder(schema, given), payloads)


_EVERY = every()


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(), st.integers(-(2**53), 2**53).map(float), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON.filter(lambda value: "\\ud" not in json.dumps(value)))
def test_both_write_the_same_json(value: Any) -> None:
    holder = struct_pb2.ListValue()
    holder.append(value) if not isinstance(value, dict) else holder.values.add().struct_value.update(value)
    schema, given = _EVERY
    bad = check_agreement(ProtobufDecoder(schema, given), [sized(14, holder.SerializeToString())])
    if not bad:
        decoded = ProtobufDecoder(columns("jl STRING"), given).decode([sized(14, holder.SerializeToString())])
        assert json.loads(decoded.batch.to_pylist()[0]["jl"]) == [value]


@pytest.mark.parametrize("levels", [1, 32, 33, 49, 50, 97, 98, 99, 100, 101, 102])
def test_both_end_at_the_same_depth(levels: int) -> None:
    schema, given = _EVERY
    groups = tag(99, 3) * levels + tag(99, 4) * levels
    value = tag(1, 0) + b"\x00"
    for _ in range(levels):
        value = sized(6, sized(1, value))
    parts = tag(4, 0) + b"\x01"
    for _ in range(levels):
        parts = sized(5, parts) + tag(4, 0) + b"\x01"
    inside = [
        sized(13, groups),
        sized(6, groups + parts),
        sized(13, value),
        sized(12, sized(1, sized(2, value))),
    ]
    check_agreement(ProtobufDecoder(schema, given), [groups, *inside])


def test_a_plan_for_other_columns_is_not_taken() -> None:
    schema, given = _EVERY
    plan = ProtobufDecoder(schema, given).native_options["protobuf.plan"]
    for other in (pa.schema([("i", pa.string())]), pa.schema([("i", pa.list_(pa.int64()))])):
        with pytest.raises(ValueError, match=r"protobuf\.plan"):
            native.Decoder("protobuf", other, {"protobuf.plan": plan})
    for text in (
        "",
        "{}",
        '[{"number":1}]',
        '[{"number":1,"name":"x","wire":"int64","column":0,"as":"float"}]',
    ):
        with pytest.raises(ValueError, match=r"protobuf\.plan"):
            native.Decoder("protobuf", pa.schema([("x", pa.int64())]), {"protobuf.plan": text})


def test_the_native_reader_takes_the_format() -> None:
    schema, given = _EVERY
    options = {
        "bootstrap.servers": "localhost:1",
        "topic": "t",
        "group.id": "g",
        "format": "protobuf",
        **given,
    }
    bound = KAFKA.bind(options)
    assert NativeReader.open([], RowDecoder(schema, bound), bound)
