"""FORMAT protobuf: one message a record; what the bytes say is in the columns, or the record is refused."""

from __future__ import annotations

import json
import math
import re
import resource
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.protobuf_support import (
    BOMBS,
    RECURSIVE,
    RECURSIVE_COLUMNS,
    columns,
    made,
    message_type,
    nested,
    options,
    refused,
    row,
    sized,
    tag,
    varint,
)

from forebay.errors import UnsupportedSqlError
from forebay.formats import RefusalKind, decoder
from forebay.formats.protobuf_format import ProtobufDecoder

MALFORMED, MISMATCH, CONVERSION = (
    RefusalKind.MALFORMED_PAYLOAD,
    RefusalKind.SCHEMA_MISMATCH,
    RefusalKind.TYPE_CONVERSION,
)
ENUM = "enum E { ZERO = 0; ONE = 1; UNO = 1; LOW = -5; option allow_alias = true; } "


def value(kind: str, column: str, payload: bytes, more: str = "", syntax: str = "proto3") -> Any:
    """The value of the only column, x, which is field 1; or the refusal."""
    found = row(made(f"{more} message M {{ {kind} x = 1; }}", f"x {column}", syntax).decode([payload]))
    return found["x"] if isinstance(found, dict) else found


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "column", "payload", "expected"),
    [
        ("int32", "INT", tag(1, 0) + varint(-7), -7),
        ("int64", "BIGINT", tag(1, 0) + varint(-(2**63)), -(2**63)),
        ("uint32", "BIGINT", tag(1, 0) + varint(2**32 - 1), 2**32 - 1),
        ("uint64", "BIGINT", tag(1, 0) + varint(2**63 - 1), 2**63 - 1),
        ("uint64", "DECIMAL(20,0)", tag(1, 0) + varint(2**64 - 1), Decimal(2**64 - 1)),
        ("uint64", "DECIMAL(38,4)", tag(1, 0) + varint(7), Decimal("7.0000")),
        ("sint32", "INT", tag(1, 0) + varint(5), -3),
        ("sint64", "BIGINT", tag(1, 0) + varint(2**64 - 1), -(2**63)),
        ("fixed32", "BIGINT", tag(1, 5) + b"\xff" * 4, 2**32 - 1),
        ("sfixed32", "INT", tag(1, 5) + b"\xff" * 4, -1),
        ("fixed64", "BIGINT", tag(1, 1) + b"\x01" + b"\x00" * 7, 1),
        ("sfixed64", "BIGINT", tag(1, 1) + b"\xff" * 8, -1),
        ("int32", "TINYINT", tag(1, 0) + varint(-128), -128),
        ("int32", "DOUBLE", tag(1, 0) + varint(3), 3.0),
        ("int64", "FLOAT", tag(1, 0) + varint(2**40), float(2**40)),
        ("int64", "TIMESTAMP", tag(1, 0) + varint(1500), datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
        ("int64", "TIMESTAMP_NTZ", tag(1, 0) + varint(1500), datetime(1970, 1, 1, 0, 0, 1, 500000)),
        ("bool", "BOOLEAN", tag(1, 0) + b"\x01", True),
        ("bool", "BOOLEAN", tag(1, 0) + varint(2), True),
        ("bool", "BOOLEAN", tag(1, 0) + varint(-1), True),
        ("bool", "BOOLEAN", tag(1, 0) + b"\x80\x00", False),
        ("repeated bool", "ARRAY<BOOLEAN>", sized(1, b"\x00\x01\x7f"), [False, True, True]),
        ("map<bool, int32>", "MAP<BOOLEAN, INT>", sized(1, b"\x08\x01\x10\x05") + sized(1, b"\x08\x02\x10\x06"), [(True, 6)]),
        ("google.protobuf.BoolValue", "BOOLEAN", sized(1, tag(1, 0) + varint(2)), True),
        ("google.protobuf.Value", "STRING", sized(1, tag(4, 0) + varint(2)), "true"),
        ("float", "FLOAT", tag(1, 5) + b"\x00\x00\xc0\x3f", 1.5),
        ("float", "DOUBLE", tag(1, 5) + b"\x00\x00\x80\x7f", math.inf),
        ("double", "DOUBLE", tag(1, 1) + b"\x00" * 6 + b"\xf8\x3f", 1.5),
        ("string", "STRING", sized(1, "é".encode()), "é"),
        ("string", "BINARY", sized(1, "é".encode()), "é".encode()),
        ("bytes", "BINARY", sized(1, b"\xff\x00"), b"\xff\x00"),
        ("bytes", "STRING", sized(1, b"ok"), "ok"),
        ("E", "STRING", tag(1, 0) + b"\x01", "ONE"),
        ("E", "STRING", tag(1, 0) + varint(-5), "LOW"),
        ("E", "INT", tag(1, 0) + varint(7), 7),
        ("repeated int32", "ARRAY<INT>", sized(1, b"\x01\x02") + tag(1, 0) + b"\x03", [1, 2, 3]),
        ("repeated E", "ARRAY<STRING>", sized(1, b"\x00\x01"), ["ZERO", "ONE"]),
        ("repeated string", "ARRAY<STRING>", sized(1, b"a") + sized(1, b""), ["a", ""]),
        ("repeated double", "ARRAY<DOUBLE>", sized(1, b"\x00" * 16), [0.0, 0.0]),
        ("map<string, int32>", "MAP<STRING, INT>", sized(1, sized(1, b"k") + tag(2, 0) + b"\x05"), [("k", 5)]),
        ("map<int32, string>", "MAP<BIGINT, STRING>", sized(1, tag(1, 0) + varint(-1)), [(-1, "")]),
        ("map<bool, E>", "MAP<BOOLEAN, STRING>", sized(1, b""), [(False, "ZERO")]),
    ],
)  # fmt: skip
def test_each_type_is_read_as_each_column_that_can_hold_it(
    kind: str, column: str, payload: bytes, expected: Any
) -> None:
    found = value(kind, column, payload, ENUM)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("kind", "column", "payload", "reason"),
    [
        ("int32", "INT", varint(2**31), "expected int32 .*found number 2147483648"),
        ("int32", "BIGINT", varint(2**40), "expected int32"),
        ("int32", "DOUBLE", varint(2**40), "expected int32"),
        ("uint32", "BIGINT", varint(2**32), "expected uint32"),
        ("uint32", "INT", varint(2**31), "expected INT"),
        ("sint32", "BIGINT", varint(2**33), "expected sint32"),
        ("int64", "SMALLINT", varint(40_000), "expected SMALLINT .*found number 40000"),
        ("uint64", "BIGINT", varint(2**63), "expected BIGINT .*found number 9223372036854775808"),
        ("uint64", "DECIMAL(19,0)", varint(2**64 - 1), r"expected DECIMAL\(19,0\)"),
        ("int64", "DECIMAL(5,3)", varint(-100), r"expected DECIMAL\(5,3\) .*found number -100"),
        ("int64", "TIMESTAMP", varint(2**62), "expected TIMESTAMP"),
        ("E", "STRING", varint(7), "expected STRING .a name of the enum E., found number 7"),
        ("E", "STRING", varint(2**32), "found number 4294967296"),
        ("E", "INT", varint(2**32 + 1), "expected enum"),
    ],
)  # fmt: skip
def test_a_number_that_is_not_of_its_type_is_refused_and_not_cut_to_size(
    kind: str, column: str, payload: bytes, reason: str
) -> None:
    found = value(kind, column, tag(1, 0) + payload, ENUM)
    assert found.kind is CONVERSION
    assert found.message.startswith("x: ")
    assert re.search(reason, found.message)


def test_an_enum_of_proto2_that_has_no_such_number_is_refused_too() -> None:
    """By the book it is an unknown field: NULL, without a word."""
    for kind, payload in [
        ("optional E", tag(1, 0) + b"\x07"),
        ("repeated E", sized(1, b"\x01\x07")),
        ("map<string, E>", sized(1, tag(2, 0) + b"\x07")),
    ]:
        column = {"o": "STRING", "r": "ARRAY<STRING>", "m": "MAP<STRING, STRING>"}[kind[0]]
        found = value(kind, column, payload, ENUM, "proto2")
        assert found.kind is CONVERSION, kind


def test_text_that_is_not_utf8_is_malformed_and_names_its_field() -> None:
    for syntax in ("proto2", "proto3"):
        found = value("optional string", "STRING", sized(1, b"a\xff"), "", syntax)
        assert (found.kind, found.message) == (MALFORMED, "x: a string that is not UTF-8, at its byte 1")
    assert value("string", "BINARY", sized(1, b"\xff")).kind is MALFORMED
    assert value("bytes", "STRING", sized(1, b"\xff")).kind is CONVERSION
    assert value("map<string, string>", "MAP<STRING, STRING>", sized(1, sized(1, b"\xff"))).kind is MALFORMED


# -- what is not there -------------------------------------------------------------------------------


def test_absent_fields_of_proto3() -> None:
    body = f"""{ENUM} message P {{ int32 y = 1; }} message M {{
        int32 i = 1; string s = 2; E e = 3; optional int32 oi = 4; P p = 5; repeated int32 r = 6;
        map<string, P> m = 7; oneof o {{ int32 a = 8; P b = 9; }} double d = 10; bool t = 11; bytes b2 = 12; }}"""
    ddl = "i INT, s STRING, e STRING, oi INT, p STRUCT<y: INT>, r ARRAY<INT>, m MAP<STRING, STRUCT<y: INT>>, "
    ddl += "a INT, b STRUCT<y: INT>, d DOUBLE, t BOOLEAN, b2 BINARY"
    assert row(made(body, ddl).decode([b""])) == {
        "i": 0, "s": "", "e": "ZERO", "oi": None, "p": None, "r": [], "m": [], "a": None, "b": None,
        "d": 0.0, "t": False, "b2": b"",
    }  # fmt: skip


def test_absent_fields_of_proto2_are_null_or_their_declared_default() -> None:
    body = f"""{ENUM} message M {{ optional int32 i = 1; optional E e = 2; optional int32 di = 3 [default = -3];
        optional E de = 4 [default = ONE]; optional string ds = 5 [default = "é"]; optional double dd = 6 [default = inf];
        optional bool db = 7 [default = true]; optional bytes dy = 8 [default = "\\xff"]; }}"""
    ddl = "i INT, e STRING, di INT, de STRING, ds STRING, dd DOUBLE, db BOOLEAN, dy BINARY NOT NULL"
    assert row(made(body, ddl, "proto2").decode([b""])) == {
        "i": None, "e": None, "di": -3, "de": "ONE", "ds": "é", "dd": math.inf, "db": True, "dy": b"\xff",
    }  # fmt: skip


def test_a_required_or_not_null_field_that_is_missing_refuses_the_record() -> None:
    inner = "message P { required int32 y = 1; }"
    body = f"{inner} message M {{ required int32 r = 1; optional int32 o = 2; optional P p = 3; }}"
    for payload, ddl, message in [
        (b"", "r INT", "r: required, but the field is missing"),
        (tag(1, 0) + b"\x01", "r INT, o INT NOT NULL", "o: NOT NULL, but the field is missing"),
        (sized(3, b""), "p STRUCT<y: INT>", "p.y: required, but the field is missing"),
        (b"", "p STRUCT<y: INT> NOT NULL", "p: NOT NULL, but the field is missing"),
    ]:
        found = refused(made(body, ddl, "proto2").decode([payload]))
        assert (found.kind, found.message) == (MISMATCH, message)
    # What has no column is not looked at.
    assert row(made(body, "o INT", "proto2").decode([tag(2, 0) + b"\x05"])) == {"o": 5}


def test_the_last_member_of_a_oneof_is_the_one_that_is_set() -> None:
    body = "message P { int32 y = 1; } message M { oneof o { int32 a = 1; string b = 2; P c = 3; } int32 z = 4; }"
    a, b, c = tag(1, 0) + b"\x05", sized(2, b"x"), sized(3, tag(1, 0) + b"\x09")
    for payload, expected in [
        (a, {"a": 5, "b": None}),
        (a + b, {"a": None, "b": "x"}),
        (b + a, {"a": 5, "b": None}),
        (a + c, {"a": None, "b": None}),  # a member without a column unsets the others, too
        (c + b, {"a": None, "b": "x"}),
        (a + b + a, {"a": 5, "b": None}),
    ]:
        assert row(made(body, "a INT, b STRING").decode([payload])) == expected
    zero = tag(1, 0) + b"\x00"
    assert row(made(body, "a INT, z INT").decode([zero])) == {"a": 0, "z": 0}


# -- messages in messages ----------------------------------------------------------------------------


def test_messages_nest_and_the_way_to_a_bad_value_is_named() -> None:
    body = "message P { string s = 1; repeated P ps = 2; map<int32, P> mp = 3; } message M { repeated P ps = 1; }"
    ddl = "ps ARRAY<STRUCT<s: STRING, ps: ARRAY<STRUCT<s: STRING>>, mp: MAP<INT, STRUCT<s: STRING>>>>"
    record = message_type(body)()
    first, second = record.ps.add(s="one"), record.ps.add(s="two")
    first.ps.add(s="three")
    second.mp[7].s = "four"
    decoded = made(body, ddl).decode([record.SerializeToString()])
    assert row(decoded)["ps"] == [
        {"s": "one", "ps": [{"s": "three"}], "mp": []},
        {"s": "two", "ps": [], "mp": [(7, {"s": "four"})]},
    ]
    bad = sized(1, b"") + sized(1, sized(2, b"") + sized(2, sized(1, b"\xff")))
    assert refused(made(body, ddl).decode([bad])).message.startswith("ps[1].ps[1].s: a string that is not")
    bad = sized(1, sized(3, tag(1, 0) + b"\x07" + sized(2, sized(1, b"\xff"))))
    assert refused(made(body, ddl).decode([bad])).message.startswith("ps[0].mp['7'].s: ")


def test_a_message_that_comes_in_parts_is_one_and_scalars_keep_the_last() -> None:
    body = "message P { int32 y = 1; repeated int32 z = 2; } message M { P p = 1; int32 x = 2; }"
    parts = (
        sized(1, tag(1, 0) + b"\x01" + sized(2, b"\x01")),
        sized(1, sized(2, b"\x02")),
        tag(2, 0) + b"\x05",
    )
    payload = b"".join([parts[0], parts[2], parts[1], tag(2, 0) + b"\x06"])
    decoder = made(body, "p STRUCT<y: INT, z: ARRAY<INT>>, x INT")
    assert row(decoder.decode([payload])) == {"p": {"y": 1, "z": [1, 2]}, "x": 6}


def test_the_last_value_of_a_map_s_key_counts() -> None:
    entries = [
        sized(1, sized(1, key) + tag(2, 0) + number)
        for key, number in ((b"a", b"\x01"), (b"b", b"\x02"), (b"a", b"\x03"))
    ]
    assert value("map<string, int32>", "MAP<STRING, INT>", b"".join(entries)) == [("b", 2), ("a", 3)]


def test_groups_are_structs() -> None:
    body = "message M { repeated group Part = 1 { optional int32 y = 2; } optional int32 x = 3; }"
    payload = tag(1, 3) + tag(2, 0) + b"\x05" + tag(1, 4) + tag(1, 3) + tag(1, 4) + tag(3, 0) + b"\x01"
    decoder = made(body, "part ARRAY<STRUCT<y: INT>>, x INT", "proto2")
    assert row(decoder.decode([payload])) == {"part": [{"y": 5}, {"y": None}], "x": 1}
    for bad in (tag(1, 3), tag(1, 3) + tag(2, 4), tag(1, 4), tag(1, 3) + tag(1, 3) + tag(1, 4)):
        assert refused(decoder.decode([bad])).kind is MALFORMED


def test_a_recursive_message_is_read_as_deep_as_it_is_declared() -> None:
    body = "message M { int32 x = 1; M m = 2; }"
    payload = tag(1, 0) + b"\x01" + sized(2, tag(1, 0) + b"\x02" + sized(2, tag(1, 0) + b"\x03"))
    assert row(made(body, "x INT, m STRUCT<x: INT>").decode([payload])) == {"x": 1, "m": {"x": 2}}


def test_unknown_fields_are_left_out_whatever_their_wire_type() -> None:
    unknown = tag(9, 0) + b"\x01" + tag(9, 1) + b"\x00" * 8 + sized(9, b"\xff") + tag(9, 5) + b"\x00" * 4
    unknown += tag(9, 3) + tag(1, 0) + b"\x01" + tag(9, 4)
    assert value("int32", "INT", unknown + tag(1, 0) + b"\x05" + unknown) == 5


def test_a_field_in_another_wire_type_is_no_default_in_silence() -> None:
    body = (
        "message P { int32 y = 1; } message M { int32 x = 1; P p = 2; repeated string s = 3; int32 z = 4; }"
    )
    decoder = made(body, "x INT, p STRUCT<y: INT>, s ARRAY<STRING>")
    for payload, message in [
        (sized(1, b"a"), "x: the schema has int32 here, but the bytes have length-delimited bytes"),
        (tag(1, 5) + b"\x00" * 4, "x: the schema has int32 here, but the bytes have 4 bytes"),
        (tag(2, 0) + b"\x01", "p: the schema has message here, but the bytes have a varint"),
        (sized(2, tag(1, 1) + b"\x00" * 8), "p.y: the schema has int32 here, but the bytes have 8 bytes"),
        (tag(3, 3) + tag(3, 4), "s: the schema has string here, but the bytes have a group"),
    ]:
        found = refused(decoder.decode([payload]))
        assert (found.kind, found.message) == (MISMATCH, message)
    assert row(decoder.decode([sized(4, b"what has no column is unknown")]))["x"] == 0


def test_names_that_python_or_protobuf_use_themselves_are_fine() -> None:
    names = ["SerializeToString", "DESCRIPTOR", "class", "None", "f1", "HasField", "Extensions"]
    fields = " ".join(f"int32 {name} = {number};" for number, name in enumerate(names, 1))
    decoder = made(f"message M {{ {fields} }}", ", ".join(f"`{name}` INT" for name in names))
    payload = b"".join(tag(number, 0) + varint(number) for number in range(1, len(names) + 1))
    assert row(decoder.decode([payload])) == dict(zip(names, range(1, len(names) + 1), strict=True))


# -- well-known types --------------------------------------------------------------------------------


def moment(seconds: int, nanos: int) -> bytes:
    return sized(1, tag(1, 0) + varint(seconds) + tag(2, 0) + varint(nanos))


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (0, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1, 1_999, datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)),
        (-1, 999_999_999, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799, 999_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (-62_135_596_801, 0, None),
        (253_402_300_800, 0, None),
        (0, 10**9, None),
        (0, -1, None),
        (2**63 - 1, 0, None),
        (0, 2**32, None),
    ],
)
def test_a_timestamp_is_cut_to_microseconds_or_out_of_range(seconds: int, nanos: int, expected: Any) -> None:
    found = value("google.protobuf.Timestamp", "TIMESTAMP", moment(seconds, nanos))
    if expected is None:
        assert found.kind is CONVERSION
        assert f"found {seconds} seconds and {nanos} nanoseconds" in found.message
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (1, 500_000_999, 1_500_000),
        (-1, -500_000_999, -1_500_000),
        (0, -999, 0),
        (315_576_000_000, 999_999_999, 315_576_000_000_999_999),
        (315_576_000_001, 0, None),
        (1, -1, None),
        (-1, 1, None),
        (0, 10**9, None),
        (-(2**63), 0, None),
    ],
)
def test_a_duration_is_microseconds(seconds: int, nanos: int, expected: int | None) -> None:
    found = value("google.protobuf.Duration", "BIGINT", moment(seconds, nanos))
    assert found == expected if expected is not None else found.kind is CONVERSION


def test_any_well_known_type_is_also_a_struct() -> None:
    exact = value("google.protobuf.Timestamp", "STRUCT<seconds: BIGINT, nanos: INT>", moment(1, 999))
    assert exact == {"seconds": 1, "nanos": 999}
    packed = sized(1, sized(1, b"type.googleapis.com/P") + sized(2, b"\x08\x01"))
    assert value("google.protobuf.Any", "STRUCT<type_url: STRING, value: BINARY>", packed) == {
        "type_url": "type.googleapis.com/P",
        "value": b"\x08\x01",
    }
    assert value("google.protobuf.Any", "BINARY", packed) == b"\x08\x01"
    assert value("google.protobuf.Any", "BINARY", b"") is None
    assert value("google.protobuf.Any", "BINARY", sized(1, b"")) == b""


@pytest.mark.parametrize(
    ("wrapper", "column", "content", "expected"),
    [
        ("Int64Value", "BIGINT", tag(1, 0) + b"\x05", 5),
        ("Int64Value", "BIGINT", b"", 0),
        ("Int32Value", "INT", tag(1, 0) + varint(-5), -5),
        ("UInt64Value", "DECIMAL(20,0)", tag(1, 0) + varint(2**64 - 1), Decimal(2**64 - 1)),
        ("BoolValue", "BOOLEAN", tag(1, 0) + b"\x01", True),
        ("StringValue", "STRING", sized(1, b"x"), "x"),
        ("StringValue", "STRING", b"", ""),
        ("BytesValue", "BINARY", sized(1, b"\xff"), b"\xff"),
        ("DoubleValue", "DOUBLE", tag(1, 1) + b"\x00" * 8, 0.0),
        ("FloatValue", "DOUBLE", b"", 0.0),
    ],
)
def test_a_wrapper_is_a_scalar_that_may_be_null(
    wrapper: str, column: str, content: bytes, expected: Any
) -> None:
    kind = f"google.protobuf.{wrapper}"
    assert value(kind, column, sized(1, content)) == expected
    assert value(kind, column, b"") is None
    assert value(f"repeated {kind}", f"ARRAY<{column}>", sized(1, content) * 2) == [expected, expected]


def test_a_value_in_a_wrapper_is_as_strict() -> None:
    found = value("google.protobuf.Int32Value", "SMALLINT", sized(1, tag(1, 0) + varint(40_000)))
    assert (found.kind, found.message.partition(":")[0]) == (CONVERSION, "x.value")


def test_structs_are_json_text() -> None:
    body = "message M { google.protobuf.Struct s = 1; google.protobuf.Value v = 2; google.protobuf.ListValue l = 3; }"
    record = message_type(body)()
    record.s.update({"b": [1, 2.5, -1e300, None], "a": {"x": True, "é": '\u2028"'}})
    record.v.null_value = 0
    record.l.extend(["x", {}, []])
    decoded = made(body, "s STRING, v STRING, l STRING").decode(
        [record.SerializeToString(deterministic=True), b""]
    )
    first, second = decoded.batch.to_pylist()
    assert json.loads(first["s"]) == {"a": {"x": True, "é": '\u2028"'}, "b": [1.0, 2.5, -1e300, None]}
    assert (first["v"], first["l"]) == ("null", '["x",{},[]]')
    assert second == {"s": None, "v": None, "l": None}


@pytest.mark.parametrize(
    ("content", "kind", "found"),
    [
        (b"", CONVERSION, "nothing, not even null"),
        (tag(2, 1) + b"\x00" * 6 + b"\xf0\x7f", CONVERSION, "the number inf"),
        (tag(2, 1) + b"\x00" * 6 + b"\xf8\x7f", CONVERSION, "the number nan"),
        (sized(3, b"\xff"), MALFORMED, "not UTF-8"),
        (sized(6, sized(1, sized(3, b"\xff"))), MALFORMED, "not UTF-8"),
        (sized(5, sized(1, sized(1, b"\xff") + sized(2, tag(1, 0) + b"\x00"))), MALFORMED, "not UTF-8"),
        (sized(5, sized(1, sized(1, b"k"))), CONVERSION, "nothing, not even null"),
        (sized(2, b"1.5"), MISMATCH, "number_value is written in another wire type"),
    ],
)
def test_what_json_cannot_say_is_refused(content: bytes, kind: RefusalKind, found: str) -> None:
    bad = value("google.protobuf.Value", "STRING", sized(1, content))
    assert bad.kind is kind
    assert found in bad.message


# -- bytes that are none -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\x08", "x: not a Protobuf message: the bytes end inside of a number, at byte 1"),
        (b"\x08\xff", "x: not a Protobuf message: the bytes end inside of a number, at byte 2"),
        (b"\x08" + b"\xff" * 10, "x: not a Protobuf message: a number of more than 10 bytes, at byte 1"),
        (b"\x00", "not a Protobuf message: the tag 0 (field 0, wire type 0), at byte 0"),
        (b"\x0f", "not a Protobuf message: the tag 15 (field 1, wire type 7), at byte 0"),
        (b"\xff\xff\xff\xff\x7f", "not a Protobuf message: a field's tag of 34359738367, at byte 0"),
        (b"\x0c", "not a Protobuf message: the tag 12 (field 1, wire type 4), at byte 0"),
        (b"\x12\x05ab", "s: not a Protobuf message: 5 bytes are announced, and 2 are left, at byte 2"),
        (b"\x12" + b"\xff" * 9 + b"\x01", "s: not a Protobuf message: a length of more than 5 bytes, at byte 1"),
        (b"\x12\xff\xff\xff\xff\x0f", "s: not a Protobuf message: a length of 4294967295, at byte 1"),
        (b"\x09abc", "x: not a Protobuf message: 8 bytes are announced, and 3 are left, at byte 1"),
        (b"\x1a\x02\x08\xff", "p.x: not a Protobuf message: the bytes end inside of a number, at byte 4"),
        (b"\x22\x02\x01\xff", "r: not a Protobuf message: the bytes end inside of a number, at byte 4"),
        (b"\x2a\x02\x12\x09", "m.value: not a Protobuf message: 9 bytes are announced, and 0 are left, at byte 4"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_malformed_at_a_place(payload: bytes, message: str) -> None:
    body = "message M { int32 x = 1; string s = 2; M p = 3; repeated int32 r = 4; map<int32, M> m = 5; }"
    ddl = "x INT, s STRING, p STRUCT<x: INT>, r ARRAY<INT>, m MAP<INT, STRUCT<x: INT>>"
    decoder = made(body, ddl)
    good = tag(1, 0) + b"\x07"
    decoded = decoder.decode([good, payload, good])
    assert decoded.good == [0, 2]
    assert [(bad.index, bad.kind, bad.message) for bad in decoded.bad] == [(1, MALFORMED, message)]


def test_a_tombstone_is_refused_and_an_empty_message_is_a_message() -> None:
    decoded = made("message M { int32 x = 1; }", "x INT").decode([None, b""])
    assert decoded.batch.to_pylist() == [{"x": 0}]
    assert decoded.bad[0].message == "the payload is null (a tombstone)"


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_one_record(name: str) -> None:
    decoder = made(RECURSIVE, RECURSIVE_COLUMNS)
    good = tag(1, 0) + b"\x07"
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    decoded = decoder.decode([good, BOMBS[name], good])
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024
    assert decoded.good == [0, 2]
    assert decoded.bad[0].kind in (MALFORMED, CONVERSION)
    assert len(decoded.bad[0].message) < 500


def test_a_hundred_levels_are_read_and_one_more_is_too_deep() -> None:
    decoder = made("message M { int32 x = 1; M m = 2; }", "x INT, m STRUCT<x: INT>")
    assert decoder.decode([nested(100_000)]).bad == []  # what is below the columns is skipped, not entered
    value_of = sized(4, sized(6, sized(1, tag(1, 0) + b"\x00")))
    assert made(RECURSIVE, "v STRING").decode([value_of]).batch.to_pylist() == [{"v": "[null]"}]
    for groups, good in ((100, True), (101, False)):
        decoded = decoder.decode([tag(7, 3) * groups + tag(7, 4) * groups])
        assert (not decoded.bad) is good
    assert "more than 100 levels" in decoded.bad[0].message


# -- columns that the message cannot fill ------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "column", "message", "remedy"),
    [
        ("string", "INT", "column x is declared INT, which cannot be read from what the schema has: string", "STRING or BINARY"),
        ("int32", "STRING", "declared STRING, .*: int32", "INT or BIGINT"),
        ("double", "FLOAT", "declared FLOAT, .*: double", "DOUBLE"),
        ("bool", "INT", "declared INT, .*: bool", "BOOLEAN"),
        ("bool", "STRING", "declared STRING, .*: bool", "BOOLEAN"),
        ("E", "BOOLEAN", "declared BOOLEAN, .*: enum E", "STRING"),
        ("E", "TINYINT", "declared TINYINT, .*: enum E", "STRING"),
        ("string", "TIMESTAMP", "declared TIMESTAMP, .*: string", "STRING"),
        ("int32", "TIMESTAMP", "declared TIMESTAMP, .*: int32", "INT"),
        ("int32", "ARRAY<INT>", "declared ARRAY<INT>, .*: int32", "INT"),
        ("repeated int32", "INT", "declared INT, .*: repeated int32", "ARRAY"),
        ("repeated int32", "ARRAY<STRING>", r"column x\[\] is declared STRING", "INT"),
        ("map<string, int32>", "STRING", "declared STRING, .*: map<string, int32>", "MAP"),
        ("map<string, int32>", "MAP<INT, INT>", r"column x\[\] \(the key\) is declared INT, .*: string", "STRING"),
        ("map<string, int32>", "MAP<STRING, STRING>", r"column x\[\] is declared STRING, .*: int32", "INT"),
        ("P", "STRING", "declared STRING, .*: message P", "STRUCT"),
        ("P", "STRUCT<y: STRING>", r"column x\.y is declared STRING, .*: int32", "INT"),
        ("int32", "STRUCT<y: INT>", "declared STRUCT, .*: int32", "INT"),
        ("google.protobuf.Timestamp", "BIGINT", "message google.protobuf.Timestamp", "TIMESTAMP or STRUCT"),
        ("google.protobuf.Timestamp", "TIMESTAMP_NTZ", "message google.protobuf.Timestamp", "TIMESTAMP or STRUCT"),
        ("google.protobuf.Duration", "INT", "message google.protobuf.Duration", "BIGINT .microseconds"),
        ("google.protobuf.Int64Value", "STRING", "declared STRING, .*: int64", "BIGINT"),
        ("google.protobuf.Struct", "BINARY", "message google.protobuf.Struct", "STRING .JSON"),
        ("google.protobuf.Any", "STRING", "message google.protobuf.Any", "STRUCT<type_url"),
    ],
)  # fmt: skip
def test_a_column_of_another_type_is_refused_with_both_types(
    kind: str, column: str, message: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedSqlError, match=message) as refused:
        made(f"{ENUM} message P {{ int32 y = 1; }} message M {{ {kind} x = 1; }}", f"x {column}")
    assert re.search(remedy, refused.value.remedy)


def test_a_column_that_is_no_field_is_a_mistake_and_says_which_one_was_meant() -> None:
    body = "message P { int32 street = 1; } message M { int32 user_id = 1; P p = 2; }"
    for ddl, message, remedy in [
        ("user_ID INT", "column user_ID: the message M has no field of this name", "did you mean 'user_id'?"),
        ("p STRUCT<straat: INT>", r"column p\.straat: the message P has no field", "did you mean 'street'?"),
        ("zzz INT", "column zzz", "it has: user_id, p"),
    ]:
        with pytest.raises(UnsupportedSqlError, match=message) as refused:
            made(body, ddl)
        assert refused.value.remedy == remedy
    twice = pa.schema([*columns("user_id INT"), *columns("user_id INT")])
    with pytest.raises(UnsupportedSqlError, match="column user_id is declared twice"):
        ProtobufDecoder(twice, options(body))


def test_the_format_is_found_by_its_name() -> None:
    given = {"protobuf.schema": 'syntax = "proto3"; message M { string added = 2; }', "csv.null": "-"}
    decoded = decoder("protobuf", columns("added STRING"), given).decode([sized(2, b"x")])
    assert decoded.batch.to_pylist() == [{"added": "x"}]
