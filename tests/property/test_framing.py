"""The registry's frame, in the plain and in the native decoder: same ids, same refusals, nothing kept in vain."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from forebay.formats.avro_plan import compile_plan
from forebay.formats.batches import arrow_schema, decode_each
from forebay.formats.contract import Kind
from forebay.formats.framed import Lesson
from forebay.formats.framing import HEADER, schema_id
from forebay.formats.json_format import JsonDecoder
from forebay.formats.refusal import RefusedError

native = pytest.importorskip("forebay_native", reason="the native decoder is not built (make setup)")
COLUMNS = StructType([StructField("x", LongType())])
LESSONS = {
    1: Lesson({}),
    2**32 - 1: Lesson({}),
    7: Lesson(None, Kind.UnknownSchemaId, "schema id 7 is not known"),
    9: Lesson(None, Kind.SchemaMismatch, "schema id 9 does not fit"),
}
FRAMES = st.one_of(
    st.binary(max_size=8),
    st.builds(
        lambda number, rest: b"\0" + number.to_bytes(4, "big") + rest,
        st.sampled_from(sorted(LESSONS)),
        st.sampled_from([b'{"x": 1}', b"[1]", b"", b'{"x": 1}}', b'{"x": "1"}', b"\0\0\0\0\1{}"]),
    ),
)


def taught(format: str = "json") -> Any:
    return native.Decoder(format, arrow_schema(COLUMNS), {"framed": "true"})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), FRAMES), max_size=20))
@example([b"\0\0\0\0", b"\0", b"\1\0\0\0\1{}", None, b""])
def test_both_find_the_same_ids_and_refuse_the_same_payloads(values: list[bytes | None]) -> None:
    plain = JsonDecoder(COLUMNS, {})
    known = dict(LESSONS)
    unknown = Lesson(None, Kind.UnknownSchemaId, "schema id … is not known")

    def row(payload: bytes | None) -> list[Any]:
        lesson = known.setdefault(schema_id(payload), unknown)
        assert payload is not None
        if lesson.plan is None:
            raise RefusedError(Kind(lesson.kind), lesson.message)
        return plain.row(payload[HEADER:])

    expected = decode_each(values, plain.schema, row)
    made = taught()
    batch, bad = made.decode(values)
    while (wanted := made.wanted) is not None:
        assert (pa.record_batch(batch).num_rows, bad) == (0, [])  # nothing is kept in vain
        made.learn(wanted, *known[wanted].native)
        batch, bad = made.decode(values)
    assert pa.record_batch(batch).to_pylist() == expected.batch.to_pylist()
    assert [item[:2] for item in bad] == [(record.index, record.kind) for record in expected.bad]
    for (_, kind, message), record in zip(bad, expected.bad, strict=True):
        framed = kind == "UnknownSchemaId" or "byte is" in message or "schema id" in message
        assert not framed or message == record.message


def test_an_id_can_be_learned_again_and_each_has_its_own_plan() -> None:
    made = taught("avro")
    for number, kind in ((1, "int"), (2, "long")):
        fields = [{"name": "y", "type": "string"}] if number == 2 else []
        schema = {"type": "record", "name": "R", "fields": [*fields, {"name": "x", "type": kind}]}
        made.learn(number, *Lesson(compile_plan(json.dumps(schema), COLUMNS)).native)
    values = [b"\0\0\0\0\1\2", b"\0\0\0\0\2\2y\4", b"\0\0\0\0\1\6"]
    batch, bad = made.decode(values)
    assert (pa.record_batch(batch).to_pylist(), bad) == ([{"x": 1}, {"x": 2}, {"x": 3}], [])
    made.learn(2, None, "SchemaMismatch", "no longer")
    batch, bad = made.decode(values)
    assert pa.record_batch(batch).to_pylist() == [{"x": 1}, {"x": 3}]
    assert bad == [(1, "SchemaMismatch", "no longer")]


def test_what_cannot_be_learned_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"avro\.plan"):
        taught("avro").learn(1, "{}")
    with pytest.raises(ValueError, match="no kind"):
        taught().learn(1, None, "Nonsense", "")
    with pytest.raises(ValueError, match="name no schema"):
        native.Decoder("json", arrow_schema(COLUMNS), {}).learn(1, "{}")
