"""A record as a line of JSON is the record, whatever its bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import OptionValueError
from forebay.kafka.envelope import Envelope, from_json, to_json

DATA = (
    st.none() | st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore"))
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=4).map(tuple)


@dataclass(frozen=True)
class Read:
    """As the client library gives a message."""

    record: Envelope

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        assert self.record.partition is not None
        return self.record.partition

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return (0, -1) if self.record.timestamp_ms is None else (1, self.record.timestamp_ms)

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Any:
        return list(self.record.headers) or None


@given(DATA, DATA, HEADERS, st.integers(0, 99), st.none() | st.integers(0, 2**53))
def test_what_consume_prints_produce_takes_back_unchanged(
    value: bytes | None, key: bytes | None, headers: Any, partition: int, timestamp: int | None
) -> None:
    record = Envelope(value, key, headers, partition, timestamp)
    line = json.dumps(to_json(Read(record)), ensure_ascii=False)
    assert "\n" not in line
    assert from_json(line) == record


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"value": {"id": 1, "name": "é"}}', Envelope('{"id":1,"name":"é"}'.encode())),
        ('{"value": "as it stands"}', Envelope(b"as it stands")),
        ('{"value": null, "key": "gone"}', Envelope(None, b"gone")),
        ('{"value": 3, "key": 4}', Envelope(b"3", b"4")),
        ('{"value": "v", "headers": [["h", "1"], ["h", null]]}', Envelope(b"v", headers=(("h", b"1"), ("h", None)))),
        ('{"value": "v", "offset": 3, "topic": "x", "row": {}}', Envelope(b"v")),
    ],
)  # fmt: skip
def test_a_record_is_written_as_a_person_would(line: str, expected: Envelope) -> None:
    assert from_json(line) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "an object is wanted"),
        ("{}", "'value' is missing"),
        ('{"vlaue": 1}', "did you mean 'value'?"),
        ('{"value": 1, "value_base64": ""}', "exclude each other"),
        ('{"value_base64": "*"}', "not base64"),
        ('{"value_base64": 7}', "not base64"),
        ('{"value": 1, "partition": -1}', "'partition' is a whole number"),
        ('{"value": 1, "timestamp": "noon"}', "'timestamp' is a whole number"),
        ('{"value": 1, "headers": 3}', "'headers' is an object"),
        ('{"value": 1, "headers": {"h": 3}}', "header 'h' is text"),
        ('{"value": 1, "headers": [[1, "x"]]}', "a header's name is text"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(OptionValueError) as caught:
        from_json(line)
    assert why in caught.value.message
