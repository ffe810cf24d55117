"""Writer's schema to reader's schema: as fastavro resolves it, and the same in both decoders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.property.avro_cases import alike, damage
from tests.property.avro_evolution import Pair, resolved, tables, write
from tests.property.bits import kinds, rows_in_bits

from forebay.formats import Decoded, RefusalKind
from forebay.formats.arrow_batches import decode_each
from forebay.formats.avro_datum import read_datum
from forebay.formats.avro_plan import AvroPlan, compile_resolved
from forebay.formats.avro_schema import parse
from forebay.formats.avro_values import convert_record
from forebay.formats.framed import Lesson
from forebay.formats.framing import HEADER, schema_id
from forebay.native import native

KINDS = {RefusalKind.MALFORMED_PAYLOAD, RefusalKind.SCHEMA_MISMATCH, RefusalKind.TYPE_CONVERSION}
FRAME = b"\x00\x00\x00\x00\x07"


def plan_of(pair: Pair) -> AvroPlan:
    assert isinstance(pair.column, pa.StructType)
    writer, reader = parse(json.dumps(pair.writer)), parse(json.dumps(pair.reader))
    return compile_resolved(writer, reader, pa.schema(list(pair.column)), closed=True)


def decode(pair: Pair, values: Sequence[bytes | None]) -> Decoded:
    """By the plain decoder; the native one, if it is there, must agree in everything."""
    assert isinstance(pair.column, pa.StructType)
    plan, schema, names = plan_of(pair), pa.schema(list(pair.column)), pair.column.names

    def row(payload: bytes | None) -> list[Any]:
        assert schema_id(payload) == 7
        assert payload is not None
        found = convert_record(plan, read_datum(plan, payload, HEADER))
        return [found.get(name) for name in names]

    decoded = decode_each(values, schema, row)
    decoded.batch.validate(full=True)
    module = native()
    if module is not None:
        made = module.Decoder("avro", schema, {"framed": "true"})
        made.learn(b"\0\0\0\0\7", *Lesson(plan).native)
        found = made.decode(list(values))
        batch = pa.record_batch(found.batch)
        batch.validate(full=True)
        assert made.wanted is None
        assert kinds(found.bad) == kinds(decoded.bad)
        assert batch.schema.equals(decoded.batch.schema)
        assert rows_in_bits(batch) == rows_in_bits(decoded.batch)
        for bad, record in zip(found.bad, decoded.bad, strict=True):
            assert record.kind == "MalformedPayload" or "[" in record.message or bad.message == record.message
    return decoded


@given(tables(), st.data())
def test_a_datum_is_resolved_as_fastavro_resolves_it(pair: Pair, data: st.DataObject) -> None:
    payloads = [write(pair, value) for value in data.draw(st.lists(pair.values, min_size=1, max_size=4))]
    decoded = decode(pair, [FRAME + payload for payload in payloads])
    refused = {record.index: record for record in decoded.bad}
    rows = iter(decoded.batch.to_pylist())
    for index, payload in enumerate(payloads):
        expected = resolved(pair, payload)
        if expected is None:
            assert index in refused
            assert refused[index].kind in (RefusalKind.SCHEMA_MISMATCH, RefusalKind.TYPE_CONVERSION)
        else:
            assert index not in refused, refused[index].message
            assert alike(next(rows), expected)


@given(tables(), st.data())
def test_damage_never_raises_always_has_a_kind_and_is_the_same_for_both(
    pair: Pair, data: st.DataObject
) -> None:
    payloads = [write(pair, value) for value in data.draw(st.lists(pair.values, min_size=1, max_size=3))]
    damaged = [FRAME + data.draw(damage(payload)) for payload in payloads for _ in range(3)]
    damaged += [FRAME + raw for raw in data.draw(st.lists(st.binary(max_size=30), max_size=3))]
    decoded = decode(pair, damaged)
    good = list(range(len(damaged))) if decoded.good is None else decoded.good
    assert sorted([*good, *(record.index for record in decoded.bad)]) == list(range(len(damaged)))
    assert all(record.kind in KINDS and record.message for record in decoded.bad)
