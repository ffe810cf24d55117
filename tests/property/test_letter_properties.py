"""A letter is read back as it was written, whatever the record holds."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import a_letter

from forebay.deadletter.letter import Letter, NotALetterError

maybe_bytes = st.none() | st.binary(max_size=60)
names = st.text(max_size=10) | st.sampled_from(
    ["forebay.headers", "forebay.source", "__connect.errors.topic"]
)
longs = st.integers(0, 2**63 - 1)


@st.composite
def letters(draw: st.DrawFn) -> Letter:
    value = draw(maybe_bytes)
    letter = Letter(
        source=draw(st.text(max_size=10)),
        topic=draw(st.text(max_size=10)),
        partition=draw(st.integers(0, 2**31 - 1)),
        offset=draw(longs),
        timestamp_ms=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        key=draw(maybe_bytes),
        value=value,
        headers=tuple(draw(st.lists(st.tuples(names, maybe_bytes), max_size=6))),
        kind=draw(st.sampled_from(["MalformedPayload", "SchemaMismatch"])),
        message=draw(st.text(max_size=40)),
        failed_at_ms=draw(st.integers(0, 4_000_000_000_000)),
        field=draw(st.none() | st.text(max_size=10)),
        stage=draw(st.sampled_from(["KEY", "VALUE"])),
        size=len(value or b""),
        topic_id=draw(st.text(max_size=22)),
    )
    how = draw(st.sampled_from(["whole", "cut", "without"]))
    if how == "cut":
        return letter.cut(draw(st.integers(0, 30)))
    return letter.without_value() if how == "without" else letter


@given(letters())
def test_what_goes_to_kafka_comes_back(letter: Letter) -> None:
    assert Letter.from_kafka(*letter.to_kafka()) == letter


@given(letters())
def test_what_goes_to_json_comes_back(letter: Letter) -> None:
    assert Letter.from_json(json.loads(json.dumps(letter.to_json()))) == letter


@given(letters())
def test_the_records_own_key_and_headers_stay_as_they_are_and_first(letter: Letter) -> None:
    key, value, headers = letter.to_kafka()
    assert (key, value) == (letter.key, letter.value)
    assert tuple(headers[: len(letter.headers)]) == letter.headers


@given(letters(), st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3))
def test_headers_that_another_tool_adds_behind_do_no_harm(
    letter: Letter, more: list[tuple[str, bytes | None]]
) -> None:
    key, value, headers = letter.to_kafka()
    assert Letter.from_kafka(key, value, [*headers, *more]) == letter


@given(st.lists(st.tuples(names, maybe_bytes), max_size=6), maybe_bytes, maybe_bytes)
def test_a_record_of_somebody_else_is_refused(
    headers: list[tuple[str, bytes | None]], key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(NotALetterError):
        Letter.from_kafka(key, value, headers)


@given(st.binary(max_size=100), st.integers(0, 120))
def test_a_cut_value_keeps_its_head_its_size_and_its_digest(value: bytes, limit: int) -> None:
    letter = a_letter(value).cut(limit)
    assert letter.value == value[:limit]
    assert letter.size == len(value)
    if letter.whole:
        assert letter.value == value
    else:
        assert letter.sha256 == hashlib.sha256(value).hexdigest()


def test_a_null_value_is_not_a_value_left_out() -> None:
    null = a_letter(None)
    assert null.without_value().whole
    assert not a_letter(b"").without_value().whole
