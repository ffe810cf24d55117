"""A field that differs from a column only in case: the column is NULL, which is counted and said at CREATE."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.protobuf_support import columns

from forebay import column_types as types
from forebay.connectors.contract import SourceConfig
from forebay.formats import decoder, key_decoder
from forebay.kafka.connector import KafkaSource
from forebay.kafka.discovery import case_notes
from forebay.native import native

USERS = columns(
    "userId BIGINT, name STRING, at STRUCT<City: STRING, zip: STRING>, tags ARRAY<STRUCT<Id: BIGINT>>"
)


def mismatched(payloads: list[bytes], schema: pa.Schema = USERS, format: str = "json") -> list[int]:
    """What the decoders say, once they agree."""
    plain = decoder(format, schema, {})
    expected = plain.decode(payloads).case_mismatches
    module = native()
    if module is not None:
        assert module.Decoder(format, plain.schema, {}).decode(payloads).case_mismatches == expected
    return expected


@pytest.mark.parametrize(
    "record",
    [
        {"userid": 1, "name": "a"},
        {"USERID": 1},
        {"userId": 1, "Name": "a"},
        {"userId": 1, "name": "a", "at": {"city": "x", "zip": "y"}},
        {"userId": 1, "tags": [{"Id": 1}, {"id": 2}]},
    ],
)
def test_a_column_that_is_null_because_of_case_is_counted(record: dict[str, Any]) -> None:
    assert mismatched([b'{"userId": 1, "name": "a"}', json.dumps(record).encode()]) == [1]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"userId": 1, "userid": 2},
        {"userid": 2, "userId": 1},
        {"userId": None, "userid": 2},
        {"user_id": 1, "nam": 2, "names": 3},
        {"userId": 1, "at": None},
        {"userId": 1, "other": {"name": 1, "Name": 2}, "name": "a"},
    ],
)
def test_what_is_absent_or_there_is_not(record: dict[str, Any]) -> None:
    assert mismatched([json.dumps(record).encode()]) == []


def test_a_record_counts_once_and_only_if_it_is_taken() -> None:
    both = b'{"userid": 1, "NAME": "a"}'
    refused = b'{"userid": 1, "name": 7}'
    assert mismatched([both, refused, b"{", both]) == [0, 3]
    required = pa.schema([pa.field("userId", types.BIGINT, nullable=False)])
    assert mismatched([b'{"userid": 1}'], required) == []  # refused, and that is said


def test_a_decoder_forgets_the_record_before() -> None:
    payloads = [b'{"userid": 1}', b'{"userId": 1}', b'{"userid": 1, "name": 7}', b'{"name": "a"}']
    assert mismatched(payloads) == [0]


def test_changes_and_their_keys_count_too() -> None:
    table = columns("userId BIGINT")
    events = [
        {"op": "c", "after": {"userid": 1}},
        {"op": "c", "after": {"userId": 1}, "before": {"userid": 1}},
        {"op": "u", "before": {"userId": 1}, "after": {"userid": 1}},
        {"schema": {}, "payload": {"op": "d", "before": {"userid": 1}}},
    ]
    payloads = [json.dumps(each).encode() for each in events]
    assert mismatched([*payloads, b"", payloads[1]], table, "debezium-json") == [0, 2, 3]
    keys = key_decoder("debezium-json", table, {}).decode(
        [b'{"userid": 1}', b'{"payload": {"userid": 1}, "schema": 1}']
    )
    assert keys.case_mismatches == [0, 1]


def notes(payloads: list[bytes | None], schema: pa.Schema = USERS, **more: str) -> tuple[str, ...]:
    given = {"bootstrap.servers": "x", "topic": "t", "group.id": "g", "format": "json"} | more
    options = KafkaSource(SourceConfig("s", "kafka", given, schema)).options
    return case_notes(schema, options, lambda _: payloads)


def test_create_says_which_column_which_field_and_what_to_do() -> None:
    found = notes([b'{"userid": 1}', b'{"userid": 2, "name": "a"}', b'{"userId": 3}', b"{", None])
    assert found == (
        "note: column 'userId' is NULL in 2 of 3 sampled records: they have a field 'userid', and names match exactly, "
        "case included; declare the column as 'userid'",
    )


def test_create_says_it_of_nested_fields_and_of_changes() -> None:
    (nested,) = notes([b'{"userId": 1, "name": "a", "at": {"city": "x"}}'])
    assert "column 'at.City' is NULL in 1 of 1" in nested
    assert "'city'" in nested
    change = {"schema": {}, "payload": {"op": "u", "before": {"userid": 1}, "after": {"userid": 2}}}
    payloads = [json.dumps(change).encode(), json.dumps(change["payload"]).encode(), b'{"payload": null}']
    (of_change,) = notes(payloads, format="debezium-json")
    assert "column 'userId' is NULL in 2 of 2" in of_change


def test_create_says_nothing_where_there_is_nothing_to_say() -> None:
    assert notes([]) == ()
    assert notes([b'{"userId": 1}', b'{"user": 1}', b"[]", b"7"]) == ()
    assert notes([b'{"userid": 1}'], **{"key.format": "json", "key.columns": "userId"}) == ()
