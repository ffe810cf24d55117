"""Values of Avro and Protobuf as JSON that is edited: what is not edited comes back as it was, byte for byte."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property import avro_cases, protobuf_cases

from forebay.formats import decoder
from forebay.kafka.json_payloads import JsonPayloads
from forebay.kafka.options import KAFKA


def payloads_of(format: str, **given: str) -> JsonPayloads:
    named = {name.replace("_", "."): text for name, text in given.items()}
    asked = {"bootstrap.servers": "localhost:1", "topic": "t", "group.id": "g", "format": format}
    return JsonPayloads(KAFKA.bind(asked | named))


@given(avro_cases.tables(), st.data())
def test_an_avro_record_comes_back_from_json_as_it_was(case: avro_cases.Case, data: st.DataObject) -> None:
    values = payloads_of("avro", avro_schema=json.dumps(case.schema))
    for payload in avro_cases.write(case, data.draw(st.lists(case.loose, max_size=3))):
        if not payload:
            continue  # no format takes an empty payload
        text = values.text(payload)
        json.loads(text, parse_constant=_refuse)
        made = values.payload(text, payload)
        # A decimal may have been written with more bytes than it needs.
        assert made == payload or values.text(made) == text


@given(protobuf_cases.tables(), st.data())
def test_a_protobuf_record_comes_back_from_json_as_it_was(
    case: protobuf_cases.Case, data: st.DataObject
) -> None:
    given = {name.replace(".", "_"): text for name, text in case.options.items()}
    values = payloads_of("protobuf", **given)
    made = decoder("protobuf", case.columns, case.options)
    pairs: list[tuple[Any, Any]] = data.draw(st.lists(case.kind.good, max_size=3))
    for payload in (case.write(pair[0]) for pair in pairs):
        text = values.text(payload)
        json.loads(text, parse_constant=_refuse)
        rows = made.decode([payload, values.payload(text, payload)]).batch.to_pylist()
        one, other = protobuf_cases.sort_maps(rows)
        assert avro_cases.alike(one, other)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
