"""The index of dead letters: each once, counted rightly, with the states that the catalog has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.deadletter.identity import Identity
from forebay.deadletter.index import HOUR, MINUTE, Found, LetterIndex
from forebay.deadletter.letter import REPLAY_ID, REPLAYED_FROM, Letter
from forebay.deadletter.outcomes import Intent, Outcomes, mark_of

T0 = 1_768_471_200_000


def letter(
    offset: int,
    *,
    kind: str = "TypeConversion",
    at: int = T0,
    id: str = "id1",
    source: str = "s",
    **more: object,
) -> Letter:
    headers = more.get("headers", ())
    return Letter(
        source, "t", 0, offset, at, b"k", b"v", headers, kind, f"price: found number {offset}", at, "price", size=1, topic_id=id  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def outcomes(tmp_path: Path) -> Iterator[Outcomes]:
    made = Outcomes(tmp_path / "catalog.db")
    yield made
    made.close()


@pytest.fixture
def index(tmp_path: Path, outcomes: Outcomes) -> Iterator[LetterIndex]:
    made = LetterIndex(tmp_path / "dead_letters", tmp_path / "catalog.db", most=50)
    yield made
    made.close()


def put(index: LetterIndex, *letters: Letter, place: int | None = None, start: int = 0) -> int:
    """The writer's number."""
    place = index.place("p", "dlq1") if place is None else place
    found = [Found("0", start + at, each) for at, each in enumerate(letters)]
    index.add(place, found, {"0": (start + len(found), "")})
    return index.writers(place)["s"]


def test_a_letter_that_was_written_twice_is_one(index: LetterIndex) -> None:
    writer = put(index, letter(1), letter(1), letter(2))
    put(index, letter(2), start=3)
    assert index.count([writer]) == 2
    assert index.positions(index.place("p", "dlq1")) == {"0": (4, "")}
    # Of a topic that was deleted and made again they are other letters; and one that did not know its id is the same.
    put(index, letter(1, id="id2"), letter(9, id=""), letter(9), start=4)
    assert index.count([writer]) == 4
    assert len(index.named(writer, Identity("t", 0, 1))) == 2


def test_a_dead_letter_topic_that_is_made_again_is_read_anew(index: LetterIndex) -> None:
    writer = put(index, letter(1))
    assert index.place("p", "dlq2") == index.place("p", "")
    assert index.count([writer]) == 0
    assert index.positions(index.place("p", "dlq2")) == {}


def test_what_retention_took_is_forgotten_and_the_bound_leaves_out_the_oldest(index: LetterIndex) -> None:
    writer = put(index, *(letter(number) for number in range(10)))
    index.forget(index.place("p", "dlq1"), "0", 4)
    assert index.count([writer]) == 6
    put(index, *(letter(number) for number in range(100, 160)), start=10)
    assert index.count([writer]) == 50
    assert index.left_out == 16


def test_states_follow_what_anybody_decides(index: LetterIndex, outcomes: Outcomes) -> None:
    letters = [letter(number) for number in range(4)]
    outcomes.discard("s", {letters[0].identity: mark_of(letters[0])}, "before it was indexed")
    writer = put(index, *letters)
    index.settle(writer, "s")
    outcomes.discard("s", {letters[1].identity: mark_of(letters[1])}, "after", "ann")
    intent = Intent("r1", "t", {}, {letters[2].identity: ""})
    outcomes.intend("s", intent)
    outcomes.settle("s", intent, {letters[2].identity: (0, 77)}, "bob")
    outcomes.reopen("s", [letters[0].identity])
    assert index.follow_history({"s": [writer]}) == 4
    assert [row.state for row in reversed(index.rows([writer]))] == ["open", "discarded", "replayed", "open"]
    assert index.counts([writer]) == {writer: {"open": 2, "discarded": 1, "replayed": 1}}
    assert index.targets(writer) == {("t", 0): 77}
    assert [(str(outcome.state), actor) for outcome, actor in outcomes.history("s", letters[0])] == [
        ("discarded", None),
        ("open", None),
    ]
    assert [actor for _, actor in outcomes.history("s", letters[1])] == ["ann"]


def test_a_letter_that_comes_before_its_replay_is_settled_is_found_all_the_same(
    index: LetterIndex, outcomes: Outcomes
) -> None:
    first = letter(1)
    headers = ((REPLAY_ID, b"r1"), (REPLAYED_FROM, str(first.identity).encode()))
    writer = put(index, first, letter(8, headers=headers))
    assert index.failed_again() == []
    intent = Intent("r1", "t", {}, {first.identity: ""})
    outcomes.intend("s", intent)
    outcomes.settle("s", intent, {first.identity: (0, 8)})
    index.follow_history({"s": [writer]})
    assert index.failed_again() == [("r1", first.identity, Identity("t", 0, 8))]
    outcomes.failed_again("r1", first.identity, Identity("t", 0, 8))
    index.follow_history({"s": [writer]})
    assert index.failed_again() == []
    assert [row.state for row in index.named(writer, first.identity)] == ["failed_again"]


def test_another_process_adds_to_the_same_index(tmp_path: Path, index: LetterIndex) -> None:
    before = index.version()
    other = LetterIndex(tmp_path / "dead_letters", tmp_path / "catalog.db")
    writer = put(other, letter(1))
    put(index, letter(1), letter(2))
    assert other.count([writer]) == index.count([writer]) == 2
    assert index.version() != before
    other.close()


steps = st.lists(
    st.tuples(st.sampled_from(["add", "discard", "reopen"]), st.integers(0, 9), st.integers(0, 5000)),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(steps)
def test_counts_are_those_of_the_letters(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("counted")
    outcomes = Outcomes(folder / "catalog.db")
    index = LetterIndex(folder / "dl", folder / "catalog.db")
    known: dict[int, tuple[str, int]] = {}
    writer = put(index, letter(999))
    for verb, offset, minutes in plan:
        one = letter(offset, kind="AB"[offset % 2], at=T0 + minutes * MINUTE)
        if verb == "add":
            put(index, one)
            known.setdefault(offset, ("open", one.failed_at_ms))
        elif offset in known and verb == "discard":
            outcomes.discard("s", {one.identity: ""}, "r")
            known[offset] = ("discarded", known[offset][1])
        elif offset in known:
            outcomes.reopen("s", [one.identity])
            known[offset] = ("open", known[offset][1])
        index.follow_history({"s": [writer]})
    expected = Counter((("AB"[offset % 2]), state) for offset, (state, _) in known.items())
    expected["TypeConversion", "open"] += 1
    for unit in (MINUTE, HOUR):
        found: Counter[tuple[str, str]] = Counter()
        for each in index.grouped([writer], unit, 0, 1, 0):
            found[each.kind, each.state] += each.letters
        assert found == expected
    assert index.count([writer], "open") == sum(n for (_, state), n in expected.items() if state == "open")
    index.close()
    outcomes.close()
