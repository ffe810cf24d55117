"""One line of a JVM is not passed on; every other byte is, in whatever pieces it comes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.jvm.stderr import NOISE, Filter

OTHER = st.binary().filter(lambda text: NOISE not in text)


def passed(*pieces: bytes) -> bytes:
    filtering = Filter()
    return b"".join(map(filtering, pieces)) + filtering.rest()


def cut(text: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(at)]


@given(OTHER, OTHER, st.lists(st.integers(0, 1000)))
def test_the_line_is_left_out_and_nothing_else(before: bytes, after: bytes, places: list[int]) -> None:
    before = before + b"\n" if before else before
    assert passed(*cut(before + NOISE + after, places)) == before + after


@given(OTHER, st.lists(st.integers(0, 1000)))
def test_without_the_line_all_is_passed_on(text: bytes, places: list[int]) -> None:
    assert passed(*cut(text, places)) == text


@pytest.mark.parametrize("text", [b"x" + NOISE, NOISE[:-1] + b", jdk.other\n", NOISE[:20]])
def test_what_only_resembles_the_line_is_passed_on(text: bytes) -> None:
    assert passed(text) == text


def test_a_piece_that_cannot_become_the_line_is_not_held_back() -> None:
    filtering = Filter()
    assert filtering(b"WARN") == b""
    assert filtering(b"ING: something else") == b"WARNING: something else"
