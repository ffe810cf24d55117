"""The plain and the native Avro decoder on the same input: same rows, same refusals."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.avro_cases import Case, damage, options, tables, write
from tests.property.bits import agreed, kinds

from forebay import column_types as types
from forebay.formats.avro_format import AvroDecoder

native = pytest.importorskip(
    "forebay_native", reason="the native decoder is not built (cargo build --release in native/)"
)


def check_agreement(schema: pa.Schema, given: dict[str, str], values: Sequence[bytes | None]) -> list[Any]:
    """The refusals, once both decoders have agreed on them and on the rows."""
    plain = AvroDecoder(schema, given)
    expected = plain.decode(values)
    made = native.Decoder("avro", plain.schema, plain.native_options)
    bad = agreed(made, expected, values)
    made.brief = True
    assert kinds(made.decode(list(values)).bad) == kinds(bad)
    for item, record in zip(bad, expected.bad, strict=True):
        # What a column refuses is said in the same words; a map's key in the path is quoted differently.
        quoted = "['" in record.message or '["' in record.message
        assert record.kind == "MalformedPayload" or quoted or item.message == record.message
    return bad


@given(tables(), st.data())
def test_both_read_the_same_datums(case: Case, data: st.DataObject) -> None:
    good = [pair[0] for pair in data.draw(st.lists(case.good, max_size=3))]
    payloads = write(case, good + data.draw(st.lists(case.loose, max_size=3)))
    bad = check_agreement(case.columns, options(case), payloads)
    assert all(item.index >= len(good) for item in bad if payloads[item.index])


@given(tables(), st.data())
def test_both_refuse_the_same_damage(case: Case, data: st.DataObject) -> None:
    payloads = write(case, data.draw(st.lists(case.loose, min_size=1, max_size=3)))
    damaged: list[bytes | None] = [data.draw(damage(payload)) for payload in payloads for _ in range(3)]
    check_agreement(case.columns, options(case), [None, *damaged, *payloads])


@given(tables(), st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_both_make_the_same_of_random_bytes(case: Case, payloads: list[bytes]) -> None:
    check_agreement(case.columns, options(case), payloads)


@given(
    st.lists(
        st.one_of(st.binary(max_size=12), st.sampled_from([b"\x80" * 9 + b"\x01", b"\xff" * 4 + b"\x0f"]))
    )
)
def test_both_read_the_same_numbers(payloads: list[bytes]) -> None:
    """Varints of every length, in an int, a long, a union's index and a block's count."""
    columns = pa.schema([pa.field("x", types.BIGINT), pa.field("y", types.array_of(types.BIGINT))])
    for kind in ("int", "long", ["int", "long"], {"type": "enum", "name": "E", "symbols": ["A", "B"]}):
        fields = [{"name": "z" if isinstance(kind, dict) else "x", "type": kind}]
        schema = {"type": "record", "name": "R", "fields": fields}
        check_agreement(columns, {"avro.schema": json.dumps(schema)}, payloads)
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "y", "type": {"type": "array", "items": "long"}}],
    }
    check_agreement(columns, {"avro.schema": json.dumps(schema)}, payloads)


def trees() -> st.SearchStrategy[dict[str, Any]]:
    def node(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {"kids": st.lists(children, max_size=3), "x": st.integers(-5, 5), "next": st.none() | children}
        )

    leaf = st.fixed_dictionaries({"kids": st.just([]), "x": st.integers(-5, 5), "next": st.none()})
    return st.recursive(leaf, node, max_leaves=8)


@given(st.lists(trees(), max_size=4), st.data())
def test_both_read_over_a_record_that_contains_itself(written: list[Any], data: st.DataObject) -> None:
    fields = [
        {"name": "kids", "type": {"type": "array", "items": "R"}},
        {"name": "next", "type": ["null", "R"]},
        {"name": "x", "type": "long"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    payloads = []
    for tree in written:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, tree)
        payloads.append(out.getvalue())
    columns, given = pa.schema([pa.field("x", types.BIGINT)]), {"avro.schema": json.dumps(schema)}
    good = AvroDecoder(columns, given).decode(payloads).batch.to_pylist()
    assert good == [{"x": tree["x"]} for tree in written]
    deep = [b"\0\2" * levels + b"\0\0" + b"\2" * (levels + 1) for levels in (99, 100, 101, 5000)]
    damaged = [data.draw(damage(payload)) for payload in payloads]
    check_agreement(columns, given, [*payloads, *deep, *damaged])
    assert len(AvroDecoder(columns, given).decode(deep).bad) == 2


def test_a_plan_for_other_columns_is_not_taken() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
    made = AvroDecoder(pa.schema([pa.field("x", types.BIGINT)]), {"avro.schema": json.dumps(schema)})
    plan = made.native_options["avro.plan"]
    for other in (pa.schema([("x", pa.string())]), pa.schema([("y", pa.list_(pa.int64()))])):
        with pytest.raises(ValueError, match=r"avro\.plan"):
            native.Decoder("avro", other, {"avro.plan": plan})
    for text in ("", "{}", "[]", '{"avro":"record","fields":[{"avro":"long"}]}'):
        with pytest.raises(ValueError, match=r"avro\.plan"):
            native.Decoder("avro", pa.schema([("x", pa.int64())]), {"avro.plan": text})
