"""`dlq show`: where a record of each format failed, and what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from protobuf_support import columns

from forebay.connectors.contract import SourceConfig
from forebay.deadletter.entry import Entry
from forebay.deadletter.explain import Explanation, explain
from forebay.deadletter.letter import Letter
from forebay.deadletter.outcomes import OPEN, LetterState, Outcome
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.router import letter
from forebay.kafka.options import KAFKA
from forebay.kafka.rows import RowDecoder

DDL = "id BIGINT NOT NULL, name STRING, ok BOOLEAN"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "ok", "type": "boolean"},
        ],
    }
)
PROTO = 'syntax = "proto3"; message M { int64 id = 1; string name = 2; bool ok = 3; }'


class Message:
    """A message as confluent-kafka has it."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000


def explained(value: bytes | None, key: bytes | None = None, ddl: str = DDL, **options: str) -> Explanation:
    """The explanation of the letter that a source of these options writes about a record."""
    given = {
        "bootstrap.servers": "b",
        "topic": "t",
        "group.id": "g",
        **{k.replace("_", "."): v for k, v in options.items()},
    }
    config = SourceConfig("s", "kafka", given, columns(ddl))
    bound = KAFKA.bind(given)
    [batch] = RowDecoder(config.schema, bound).decode([Message(key, value)], whole=True)
    [bad] = batch.rejected
    return explain(Entry(letter("s", bad, ErrorPolicy(), 2_000), OPEN), config, bound, None)


def marked(found: Explanation) -> bytes:
    made = found.entry.letter
    payload = (made.key if found.part == "key" else made.value) or b""
    assert found.span is not None
    return payload[found.span[0] : found.span[1]]


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (b'{"id": "x", "name": "n"}', b'"x"'),
        (b'{"id": 1, "name": 5}', b"5"),
        (b'{"name": "n"}', b"{"),
        (b'{"id": 1,, "name": "n"}', b","),
        (b'{"id": 1, "name": "\xff"}', b"\xff"),
    ],
)
def test_json(value: bytes, at: bytes) -> None:
    assert marked(explained(value, format="json")) == at


def test_csv() -> None:
    assert marked(explained(b"1,n,perhaps\n", format="csv")) == b"perhaps"
    assert marked(explained(b'x;"a;b";true', format="csv", csv_delimiter=";")) == b"x"
    assert explained(b"1,n", format="csv").span is None


def test_avro() -> None:
    good = b"\x02\x02n\x01"
    assert marked(explained(good[:-1] + b"\x07", format="avro", avro_schema=AVRO)) == b"\x07"
    assert explained(good[:-2], format="avro", avro_schema=AVRO).span == (1, 2)
    assert marked(explained(good + b"zz", format="avro", avro_schema=AVRO)) == b"z"


def test_protobuf() -> None:
    found = explained(b"\x08\x01\x12\x09n", format="protobuf", protobuf_schema=PROTO, protobuf_message="M")
    assert found.span is not None
    assert dict(found.tried)["format"] == "protobuf"


def test_a_key_that_is_wrong_is_what_is_shown() -> None:
    found = explained(b'{"name": "n"}', b'{"id": "x"}', format="json", key_format="json", key_columns="id")
    assert (found.part, marked(found)) == ("key", b'"x"')
    assert found.now == "refused, for the same reason"


def test_a_tombstone_has_no_bytes_to_show() -> None:
    found = explained(None, format="json")
    assert (found.lines, found.span, found.hidden) == ((), None, 0)


def test_the_remedy_names_the_column_and_a_patch() -> None:
    assert "--patch '{\"id\": …}'" in explained(b'{"id": "x"}', format="json").remedy
    assert "declare id without NOT NULL" in explained(b"{}", format="json").remedy
    remedy = explained(b"x,n,true", format="csv").remedy
    assert "forebay dlq replay --source s --id t/0/7 --with module:function" in remedy
    assert "did not write json" in explained(b"{", format="json").remedy


def test_a_fault_that_the_letter_words_otherwise_is_the_same_fault() -> None:
    found = explained(b'{"id": "x"}', format="json")
    other = replace(found.entry.letter, message="id: a number is wanted here")
    given = {"bootstrap.servers": "b", "topic": "t", "group.id": "g", "format": "json"}
    config = SourceConfig("s", "kafka", given, columns(DDL))
    again = explain(Entry(other, OPEN), config, KAFKA.bind(given), None)
    assert again.now == "refused, for the same reason"
    elsewhere = replace(other, field="name")
    found = explain(Entry(elsewhere, OPEN), config, KAFKA.bind(given), None)
    assert found.now.startswith("refused: TypeConversion: id: ")


def test_a_record_that_the_source_takes_now_needs_a_replay_alone() -> None:
    given = {"bootstrap.servers": "b", "topic": "t", "group.id": "g", "format": "json"}
    config = SourceConfig("s", "kafka", given, columns("id BIGINT"))
    value = b'{"name": "n"}'
    old = Letter(
        "s",
        "t",
        0,
        7,
        None,
        None,
        value,
        (),
        "SchemaMismatch",
        "id: NOT NULL, but …",
        0,
        "id",
        size=len(value),
    )
    found = explain(Entry(old, OPEN), config, KAFKA.bind(given), None)
    assert (found.now, found.remedy) == (
        "decodes",
        "the source takes it now: forebay dlq replay --source s --id t/0/7",
    )
    done = explain(Entry(old, Outcome(LetterState.DISCARDED, reason="old")), config, KAFKA.bind(given), None)
    assert done.remedy == "none needed: it is discarded (old)"
    part = explain(Entry(old.cut(5), OPEN), config, KAFKA.bind(given), "http://r")
    assert part.now.startswith("not tried")
    assert ("registry", "http://r, no schema id in it") in part.tried
