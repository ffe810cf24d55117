"""Protobuf in a registry's framing: each record by the schema that it names, from a callable that knows them."""

from __future__ import annotations

import pickle

from tests.protobuf_support import columns, sized, tag

from forebay.formats import RefusalKind
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_schema import registered_files

MALFORMED, MISMATCH = RefusalKind.MALFORMED_PAYLOAD, RefusalKind.SCHEMA_MISMATCH
FIRST = 'syntax = "proto3"; message Other { int32 y = 1; } message M { int32 x = 1; message Inner { int64 x = 1; } }'
SECOND = 'syntax = "proto3"; message M { int64 x = 1; string added = 2; }'
CLASHING = 'syntax = "proto3"; message M { string x = 1; }'


class Registry:
    """A registry's schemas; counts how often it is asked."""

    def __init__(self) -> None:
        self.schemas = {1: FIRST, 2: SECOND, 3: CLASHING, 4: b"\xff"}
        self.asked: list[int] = []

    def __call__(self, schema_id: int) -> bytes:
        self.asked.append(schema_id)
        found = self.schemas[schema_id]
        return registered_files(found, {}) if isinstance(found, str) else found


def framed(schema_id: int, indexes: bytes, content: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + indexes + content


def test_each_record_is_read_by_the_schema_that_it_names() -> None:
    registry = Registry()
    decoder = ProtobufDecoder(columns("x BIGINT, added STRING"), {}, registry)
    content = tag(1, 0) + b"\x05"
    decoded = decoder.decode(
        [
            framed(1, b"\x02\x02", content),
            framed(2, b"\x00", content + sized(2, b"new")),
            framed(1, b"\x04\x02\x00", content),
            framed(2, b"\x00", content),
            framed(2, b"\x02\x00", b""),
        ]
    )
    assert decoded.bad == []
    assert decoded.batch.to_pylist() == [
        {"x": 5, "added": None},
        {"x": 5, "added": "new"},
        {"x": 5, "added": None},
        {"x": 5, "added": ""},
        {"x": 0, "added": ""},
    ]
    decoder.decode([framed(2, b"\x00", content)])
    assert sorted(registry.asked) == [1, 1, 2]
    assert decoder.native_options == {"framed": "true"}
    assert pickle.loads(pickle.dumps(decoder)).decode([framed(2, b"\x00", content)]).bad == []


def test_what_a_registry_makes_of_a_record_has_a_kind() -> None:
    registry = Registry()
    decoder = ProtobufDecoder(columns("x BIGINT NOT NULL"), {"protobuf.message": "M"}, registry)
    payloads = {
        framed(9, b"\x00", b""): (RefusalKind.UNKNOWN_SCHEMA_ID, "the registry has no schema 9"),
        framed(1, b"\x02\x08", b""): (MALFORMED, "the schema 1 has no message at [4]"),
        framed(1, b"\x00", b""): (MISMATCH, "a record of the message Other, and the source reads M"),
        framed(3, b"\x00", b""): (MISMATCH, "the schema 3: column x is declared BIGINT, which cannot be read from what the schema has: string"),
        b"\x08\x01": (MALFORMED, "not in a schema registry's framing: the payload has 2 bytes, and the header alone has 6"),
        framed(2, b"\x00", b"\x08"): (MALFORMED, "x: not a Protobuf message: the bytes end inside of a number, at byte 1"),
    }  # fmt: skip
    for _ in range(2):
        decoded = decoder.decode([*payloads, None])
        assert [(bad.kind, bad.message) for bad in decoded.bad[:-1]] == list(payloads.values())
    assert decoder.decode([framed(4, b"\x00", b"")]).bad[0].kind is MISMATCH
    # An id that was unknown may be known later.
    registry.schemas[9] = SECOND
    assert decoder.decode([framed(9, b"\x00", b"")]).bad == []


def test_a_not_null_column_that_a_schema_does_not_have_refuses_its_records() -> None:
    decoder = ProtobufDecoder(
        columns("x BIGINT, added STRING NOT NULL"), {"protobuf.message": "M"}, Registry()
    )
    decoded = decoder.decode([framed(1, b"\x02\x02", b""), framed(2, b"\x00", b"")])
    assert [bad.message for bad in decoded.bad] == [
        "the schema 1: column added: the message M has no field of this name"
    ]
    assert decoded.batch.to_pylist() == [{"x": 0, "added": ""}]
