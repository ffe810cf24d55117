"""The frame that Confluent's serializers put around a payload: a magic byte, the schema's id, the rest."""

from __future__ import annotations

from forebay.formats.refusal import check_present, malformed

MAGIC = 0
HEADER = 5
"""Bytes before the rest: the magic byte and the id in network order."""


def schema_id(payload: bytes | None) -> int:
    """The id in a payload's frame. RefusedError if it has none."""
    check_present(payload)
    assert payload is not None
    if payload[0] != MAGIC:
        raise malformed(
            f"the first byte is {payload[0]}, not the {MAGIC} that a schema registry's serializer puts there"
        )
    if len(payload) < HEADER:
        raise malformed(f"the payload ends inside of the schema id, after {len(payload)} bytes")
    return int.from_bytes(payload[1:HEADER], "big")
