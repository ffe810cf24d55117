"""Letters with the same fault fall together, whatever their values are."""

from __future__ import annotations

import json
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from forebay.deadletter.groups import field_of, group_id, pattern_of

WORDS = st.text(st.characters(categories=["L"]), min_size=1, max_size=8)
TEXTS = st.text(max_size=20)
VALUES = st.one_of(
    TEXTS.map(repr),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.uuids().map(str),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
)


@given(st.text())
def test_normalising_twice_is_normalising_once(message: str) -> None:
    once = pattern_of(message)
    assert pattern_of(once) == once


@given(st.lists(WORDS, min_size=1, max_size=5), st.data())
def test_messages_that_differ_in_values_alone_are_one_group(words: list[str], data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from(["text", "number", "id"])) for _ in words]

    def message() -> str:
        made = {
            "text": lambda: data.draw(TEXTS.map(repr)),
            "number": lambda: data.draw(
                st.one_of(st.integers().map(str), st.floats(0.001, 1e6).map(lambda number: f"{number:f}"))
            ),
            "id": lambda: str(data.draw(st.uuids())),
        }
        return " ".join(f"{word} {made[kind]()}" for word, kind in zip(words, kinds, strict=True))

    one, other = message(), message()
    assert pattern_of(one) == pattern_of(other)


@given(WORDS, VALUES)
def test_what_a_message_quotes_is_not_in_its_pattern(word: str, value: str) -> None:
    inside = value.strip("'\"")
    pattern = pattern_of(f"{word}: expected BIGINT, found {value}")
    assert len(inside) < 4 or inside not in pattern.removeprefix(word)


def test_names_that_hold_digits_are_no_numbers() -> None:
    assert (
        pattern_of("expected int64 as of FB1203, found number 12.5e3")
        == "expected int64 as of FB1203, found number <n>"
    )
    assert pattern_of("it isn't one, and 'that' isn't either") == "it isn't one, and <text> isn't either"


def test_the_place_in_a_list_is_no_field_of_its_own() -> None:
    assert field_of("items[3].price") == field_of("items[17].price") == "items[*].price"
    assert field_of("tags['a b'].x") == "tags[*].x"
    assert field_of(None) is None


@given(st.tuples(WORDS, WORDS, st.none() | WORDS, WORDS), st.tuples(WORDS, WORDS, st.none() | WORDS, WORDS))
def test_two_groups_have_two_ids(
    one: tuple[str, str, str | None, str], other: tuple[str, str, str | None, str]
) -> None:
    assert (group_id(*one) == group_id(*other)) == (one == other)
    assert UUID(hex=group_id(*one).ljust(32, "0"))
    assert json.dumps(group_id(*one)).isascii()
