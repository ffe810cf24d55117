"""The header that registry clients put in front of a Protobuf message: which schema, which message of it.

    0x00   schema id, 4 bytes, big-endian   count, index, index, …   the message

The indexes are zig-zag varints and lead from the schema's messages to the one that follows: [2, 0] is the
first message inside of the third. A single 0 in place of "one index, 0" is short for the first message.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.formats.refusal import RefusedError, malformed

MAX_INDEXES = 32
"""protoc nests messages no deeper."""

_LONGEST = 5  # bytes of a 32-bit varint


@dataclass(frozen=True, slots=True)
class Framed:
    """A payload, taken apart. `start` is where the message begins."""

    schema_id: int
    indexes: tuple[int, ...]
    start: int


def unframe(payload: bytes) -> Framed:
    """RefusedError (MalformedPayload) if the payload does not begin with such a header."""
    if len(payload) < 6:
        raise _wrong(f"the payload has {len(payload)} bytes, and the header alone has 6")
    if payload[0] != 0:
        raise _wrong(f"the first byte is {payload[0]:#04x} and not 0x00")
    schema_id = int.from_bytes(payload[1:5], "big", signed=True)
    if schema_id < 0:
        raise _wrong(f"the schema id is {schema_id}")
    count, at = _zigzag(payload, 5)
    if count == 0:
        return Framed(schema_id, (0,), at)
    if not 0 < count <= MAX_INDEXES:
        raise _wrong(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise _wrong(f"the message index {index}")
        indexes.append(index)
    return Framed(schema_id, tuple(indexes), at)


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST):
        if at + place >= len(payload):
            raise _wrong("the payload ends inside of the message indexes")
        byte = payload[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80 and value < 2**32:
            return (value >> 1) ^ -(value & 1), at + place + 1
        if byte < 0x80:
            break
    raise _wrong("a message index of more than 32 bits")


def _wrong(reason: str) -> RefusedError:
    return malformed(f"not in a schema registry's framing: {reason}")
