"""The header in front of a registry's Protobuf messages: every byte of it, and nothing that is not one."""

from __future__ import annotations

import io

import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from forebay.formats import RefusalKind
from forebay.formats.protobuf_framing import MAX_INDEXES, Framed, unframe
from forebay.formats.refusal import RefusedError

ID = b"\x00\x00\x00\x00\x2a"


def written(indexes: list[int]) -> bytes:
    """The indexes as Confluent's own serializer writes them."""
    out = io.BytesIO()
    ProtobufSerializer._encode_varints(out, indexes, zigzag=True)
    return out.getvalue()


@pytest.mark.parametrize(
    ("header", "indexes"),
    [
        (ID + b"\x00", (0,)),
        (ID + b"\x02\x00", (0,)),
        (ID + b"\x02\x02", (1,)),
        (ID + b"\x04\x04\x00", (2, 0)),
        (ID + b"\x02\xfe\xff\xff\xff\x0f", (2**31 - 1,)),
    ],
)
def test_the_indexes_lead_to_a_message(header: bytes, indexes: tuple[int, ...]) -> None:
    assert unframe(header + b"rest") == Framed(42, indexes, len(header))


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=MAX_INDEXES), st.binary(max_size=5))
def test_what_confluent_s_serializer_writes_is_what_is_read(indexes: list[int], rest: bytes) -> None:
    header = ID + written(indexes)
    assert unframe(header + rest) == Framed(42, tuple(indexes), len(header))


def test_confluent_s_path_to_a_message_is_the_same_as_ours() -> None:
    nested = descriptor_pb2.DescriptorProto.ExtensionRange.DESCRIPTOR
    indexes = _create_index_array(nested)
    header = ID + written(indexes)
    assert unframe(header).indexes == tuple(indexes)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "0 bytes"),
        (b"\x00\x00\x00\x00\x01", "5 bytes"),
        (b"\x01\x00\x00\x00\x01\x00", "0x01 and not 0x00"),
        (b'{"a": 1}', "0x7b"),
        (b"\x00\xff\xff\xff\xff\x00", "the schema id is -1"),
        (ID + b"\x01", "-1 message indexes"),
        (ID + b"\x42" + b"\x00" * 33, "33 message indexes"),
        (ID + b"\xfe\xff\xff\xff\x0f", "2147483647 message indexes"),
        (ID + b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
        (ID + b"\x80\x80\x80\x80\x80\x00", "more than 32 bits"),
        (ID + b"\x02", "ends inside of the message indexes"),
        (ID + b"\x04\x00", "ends inside of the message indexes"),
        (ID + b"\x80", "ends inside of the message indexes"),
        (ID + b"\x02\x01", "the message index -1"),
    ],
)
def test_anything_else_is_malformed(payload: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as refused:
        unframe(payload)
    assert refused.value.kind is RefusalKind.MALFORMED_PAYLOAD


@given(st.binary(max_size=30))
def test_random_bytes_are_a_header_or_malformed(payload: bytes) -> None:
    kind = None
    try:
        found = unframe(payload)
        assert 6 <= found.start <= len(payload)
        assert 0 < len(found.indexes) <= MAX_INDEXES
    except RefusedError as refused:
        kind = refused.kind
    assert kind in (None, RefusalKind.MALFORMED_PAYLOAD)
