"""Conditions on letters: what they select, and what they say when they are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.deadletter.entry import COLUMNS, Entry, batch_of, text_of
from forebay.deadletter.letter import Letter
from forebay.deadletter.outcomes import OPEN, LetterState, Outcome
from forebay.deadletter.where import condition
from forebay.errors import StatementError, UnknownObjectError
from forebay.sql import parse_condition

LETTER = Letter(
    "orders", "t", 3, 42, 1_768_471_200_000, b"k1", b'{"id": "x"}', (("h", b"1"),), "TypeConversion",
    "id: expected BIGINT, found string 'x'", 1_768_471_260_000, field="id", size=11,
)  # fmt: skip
ENTRY = Entry(LETTER, OPEN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error_kind = 'TypeConversion'", True),
        ("error_kind <> 'TypeConversion'", False),
        ("ERROR_KIND = 'TypeConversion' AND Partition = 3", True),
        ("partition = 3 AND offset > 42", False),
        ("partition = 3 OR offset > 42", True),
        ("NOT (offset BETWEEN 40 AND 44)", False),
        ("offset NOT IN (1, 2, 42)", False),
        ("topic IN ('a', 't')", True),
        ("42 <= offset", True),
        ("42 < offset", False),
        ("-1 < offset", True),
        ("error_message LIKE 'id:%BIGINT%'", True),
        ("error_message LIKE 'ID:%'", False),
        ("error_message NOT LIKE '%x_'", False),
        ("error_message NOT LIKE 'x'", True),
        ("replay_id NOT LIKE 'x'", None),
        ("offset NOT BETWEEN 1 AND 5", True),
        ("error_message LIKE '%.%'", False),
        ("value LIKE '{\"id\"%'", True),
        ("state = 'open'", True),
        ("field IS NULL", False),
        ("field IS NOT NULL", True),
        ("replay_id IS NULL", True),
        ("replay_id = 'x'", None),
        ("NOT replay_id = 'x'", None),
        ("replay_id = 'x' OR offset = 42", True),
        ("replay_id = 'x' AND offset = 41", False),
        ("replay_id = 'x' AND offset = 42", None),
        ("complete", True),
        ("NOT complete", False),
        ("complete = true", True),
        ("timestamp = '2026-01-15 10:00:00'", True),
        ("timestamp < TIMESTAMP '2026-01-15 10:00:00'", False),
        ("failed_at >= '2026-01-15T11:00:30+01:00'", True),
        ("size = 11 AND id = 't/3/42' AND dead_letters.source = 'orders'", True),
    ],
)
def test_a_condition_is_what_sql_says(text: str, expected: bool | None) -> None:
    assert condition(parse_condition(text))(ENTRY) is expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("eror_kind = 'x'", 1, "did you mean error_kind?"),
        ("offset = 1 AND nothing_like_it = 2", 16, "there are: source, topic"),
        ("offset = 'x'", 10, "expected an integer"),
        ("offset = 1.5", 10, "expected an integer"),
        ("topic = 5", 9, "expected text in quotes"),
        ("timestamp > 'yesterday'", 13, "expected a time in quotes"),
        ("offset LIKE '4%'", 1, "LIKE compares text"),
        ("topic = source", 1, "compares a column with a value"),
        ("upper(topic) = 'T'", 1, "a column with a value"),
        ("topic IN (SELECT 1)", 1, "not supported on dead letters"),
        ("value_bytes = 'x'", 15, "key and value instead"),
        ("other.topic = 'x'", 1, "there is no table 'other'"),
        ("offset", 1, "not supported"),
        ("topic LIKE 'a' ESCAPE '!'", 1, "not supported"),
        ("topic ILIKE 'a'", 1, "not supported"),
        ("topic <=> 'a'", 1, "not supported"),
    ],
)
def test_a_wrong_condition_shows_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(StatementError) as wrong:
        condition(parse_condition(text))
    assert message in str(wrong.value)
    assert wrong.value.position is not None
    assert wrong.value.position.column == column


def test_an_unknown_column_is_an_unknown_object() -> None:
    with pytest.raises(UnknownObjectError):
        condition(parse_condition("a = 1"))


def test_every_column_fits_its_type() -> None:
    done = Outcome(LetterState.REPLAYED, 5, None, "r", "t", 1, 2)
    again = replace(LETTER, headers=(("forebay.replay.id", b"r"), ("forebay.replayed.from", b"t/1/2")))
    bare = replace(LETTER, timestamp_ms=None, key=None, value=None, headers=(), field=None)
    batch = batch_of([ENTRY, Entry(again, done), Entry(bare, OPEN)])
    assert batch.schema.names == list(COLUMNS)
    assert batch.column("replayed_to").to_pylist() == [None, "t/1/2", None]
    assert batch.column("replayed_from").to_pylist() == [None, "t/1/2", None]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, None),
        (b"", ""),
        (b"a\tb\r\n", "a\tb\r\n"),
        ("größe".encode(), "größe"),
        (b"\x00a", None),
        (b"\xff", None),
    ],
)
def test_bytes_are_text_only_where_they_are(data: bytes | None, text: str | None) -> None:
    assert text_of(data) == text
