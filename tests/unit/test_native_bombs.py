"""Payloads made to hurt are refused within a second and 256 MiB, and the next record is read."""

from __future__ import annotations

import json
import resource
import time

import pyarrow as pa
import pytest
from tests.protobuf_support import BOMBS, RECURSIVE, RECURSIVE_COLUMNS, made

from forebay import column_types as types
from forebay.formats.avro_format import AvroDecoder

native = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
MIB = 1 << 20

JSON = pa.schema(
    [
        pa.field("a", types.array_of(types.array_of(types.BIGINT))),
        pa.field("m", types.map_of(types.STRING, types.BIGINT)),
        pa.field("s", types.STRING),
    ]
)
JSON_BOMBS = {
    "deep": b"[" * (8 * MIB),
    "deep objects": b'{"x":' * MIB,
    "deep in a column": b'{"a":' + b"[" * (8 * MIB),
    "a long number": b'{"a":[[' + b"9" * (8 * MIB) + b"]]}",
    "a long exponent": b'{"a":[[1e' + b"9" * (8 * MIB) + b"]]}",
    "one key again and again": b'{"m":{' + b'"k":1,' * MIB + b'"k":1}}',
    "many keys and then trash": b'{"m":{' + b",".join(b'"%d":1' % i for i in range(500_000)) + b"}",
    "an endless string": b'{"s":"' + b"x" * (16 * MIB),
    "escapes": b'{"s":"' + b"\\u0041" * (2 * MIB),
    "colons": b'{"s"' + b":" * (8 * MIB),
}
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": {"type": "array", "items": "null"}},
        {"name": "l", "type": {"type": "array", "items": "long"}},
        {"name": "s", "type": "string"},
    ],
}
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1, as a zigzag varint
AVRO_BOMBS = {
    "nulls without end": HUGE,
    "longs without end": b"\x00" + HUGE,
    "a string of exabytes": b"\x00\x00" + HUGE,
    "a varint without end": b"\xff" * (4 * MIB),
    "blocks of nulls without end": b"\x80\x01" * (2 * MIB),
}


def check(decoder: object, bomb: bytes, good: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    decoded = decoder.decode([good, bomb, good])  # type: ignore[attr-defined]
    assert time.process_time() - start < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024
    assert [bad.index for bad in decoded.bad] == [1]
    assert len(decoded.bad[0].message) < 500
    assert pa.record_batch(decoded.batch).num_rows == 2


@pytest.mark.parametrize("name", JSON_BOMBS)
def test_a_json_bomb_costs_one_record(name: str) -> None:
    check(native.Decoder("json", JSON, {}), JSON_BOMBS[name], b'{"a": [[1]], "m": {"k": 1}, "s": "x"}')


@pytest.mark.parametrize("name", AVRO_BOMBS)
def test_an_avro_bomb_costs_one_record(name: str) -> None:
    columns = pa.schema([pa.field("l", types.array_of(types.BIGINT)), pa.field("s", types.STRING)])
    plain = AvroDecoder(columns, {"avro.schema": json.dumps(AVRO)})
    check(native.Decoder("avro", plain.schema, plain.native_options), AVRO_BOMBS[name], b"\x00\x00\x02x")


@pytest.mark.parametrize("name", BOMBS)
def test_a_protobuf_bomb_costs_one_record(name: str) -> None:
    plain = made(RECURSIVE, RECURSIVE_COLUMNS)
    check(native.Decoder("protobuf", plain.schema, plain.native_options), BOMBS[name], b"\x08\x07")
