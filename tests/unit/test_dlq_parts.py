"""The parts of the dead-letter tools that need no broker: identities, outcomes, repairs, places in payloads."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from made import a_letter

from forebay.deadletter.explain import dump
from forebay.deadletter.identity import Identity
from forebay.deadletter.locate import locate
from forebay.deadletter.outcomes import OPEN, Intent, LetterState, Outcomes, mark_of
from forebay.deadletter.repair import RepairError, checked, function, merge_patch
from forebay.deadletter.seen import Seen
from forebay.errors import OptionValueError

# -- identities and outcomes -------------------------------------------------------------------------


@given(
    some.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    some.integers(0, 2**31 - 1),
    some.integers(0, 2**63 - 1),
    some.from_regex(r"[a-zA-Z0-9+/_-]{0,22}", fullmatch=True),
)
def test_an_identity_survives_its_text(topic: str, partition: int, offset: int, id: str) -> None:
    identity = Identity(topic, partition, offset, id)
    assert Identity.parse(str(identity)) == identity
    assert identity.is_named_by(Identity.parse(identity.place))
    assert not identity.is_named_by(identity._replace(topic_id=id + "x"))


@pytest.mark.parametrize("text", ["", "t", "t/1", "/1/2", "t/x/2", "t/-1/2", "t/1/"])
def test_what_is_no_identity_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Identity.parse(text)


IDENTITIES = some.builds(
    Identity,
    some.sampled_from("ab"),
    some.integers(0, 2),
    some.integers(0, 3_000),
    some.sampled_from(["x", "y"]),
)


@given(some.lists(IDENTITIES))
def test_seen_is_a_set(identities: list[Identity]) -> None:
    seen, plain = Seen(), set()
    for identity in identities:
        assert seen.add(identity, "any") == (identity not in plain)
        plain.add(identity)


@given(
    some.lists(some.tuples(IDENTITIES.map(lambda each: each._replace(topic_id="")), some.sampled_from("mn")))
)
def test_letters_that_do_not_know_their_topics_id_are_told_apart_by_their_marks(
    letters: list[tuple[Identity, str]],
) -> None:
    seen, plain = Seen(), set()
    for identity, mark in letters:
        assert seen.add(identity, mark) == ((identity, mark) not in plain)
        plain.add((identity, mark))
        # Written again by a version that knows the id, it is still the same letter.
        assert not seen.add(identity._replace(topic_id="x"), mark)


@pytest.fixture
def outcomes(tmp_path: Path) -> Any:
    made = Outcomes(tmp_path / "catalog.db")
    yield made
    made.close()


def test_an_outcome_goes_from_open_to_failed_again(outcomes: Outcomes, tmp_path: Path) -> None:
    first, second = a_letter(b"x"), Identity("t", 0, 9)
    intent = Intent("r1", "t", {0: 5}, {first.identity: mark_of(first)})
    assert outcomes.of("s", first) == OPEN
    outcomes.intend("s", intent)
    assert outcomes.intents("s") == [intent]
    assert outcomes.intents("other") == []
    outcomes.settle("s", intent, {first.identity: (0, 8)})
    assert outcomes.intents("s") == []
    found = outcomes.of("s", first)
    assert (found.state, found.replay_id, found.target_offset) == (LetterState.REPLAYED, "r1", 8)
    assert outcomes.of("other", first) == OPEN
    assert not outcomes.failed_again("another replay", first.identity, second)
    assert outcomes.failed_again("r1", first.identity, second)
    assert not outcomes.failed_again("r1", first.identity, second)
    again = Outcomes(tmp_path / "catalog.db")
    assert again.of("s", first).state is LetterState.FAILED_AGAIN
    again.close()


def test_an_outcome_is_of_one_record_and_not_of_another_at_its_place(outcomes: Outcomes) -> None:
    """The topic was deleted and made again: what is at that offset now is open."""
    first = a_letter(b"x")
    outcomes.discard("s", {first.identity: mark_of(first)}, "junk")
    assert (
        outcomes.of("s", replace(first, value=b"", failed_at_ms=5, kind="TypeConversion")).state
        is LetterState.DISCARDED
    )
    for other in (
        replace(first, size=2),
        replace(first, timestamp_ms=5),
        replace(first, key=b"k"),
    ):
        assert outcomes.of("s", other) == OPEN
    unread = replace(first, size=-1, value=None)
    assert outcomes.of("s", unread).state is LetterState.DISCARDED


def test_an_outcome_is_of_the_topic_that_the_record_was_in(outcomes: Outcomes) -> None:
    """Also where all that the record shows is the same."""
    first, other = replace(a_letter(b"x"), topic_id="one"), replace(a_letter(b"x"), topic_id="two")
    outcomes.discard("s", {first.identity: mark_of(first)}, "junk")
    assert outcomes.of("s", first).state is LetterState.DISCARDED
    assert outcomes.of("s", other) == OPEN
    outcomes.discard("s", {other.identity: mark_of(other)}, "junk, too")
    outcomes.reopen("s", [first.identity])
    assert outcomes.of("s", first) == OPEN
    assert outcomes.of("s", other).reason == "junk, too"


def test_what_an_older_version_wrote_down_is_still_known(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    old = sqlite3.connect(path)
    old.executescript("""
        CREATE TABLE dead_letter_outcomes (
            source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
            mark TEXT NOT NULL, state TEXT NOT NULL, at_ms INTEGER NOT NULL, reason TEXT, replay_id TEXT, target_topic TEXT,
            target_partition INTEGER, target_offset INTEGER, PRIMARY KEY (source, topic, partition, "offset")
        ) WITHOUT ROWID;
        CREATE INDEX dead_letter_replays ON dead_letter_outcomes (replay_id);
        CREATE TABLE dead_letter_intents (
            replay_id TEXT PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL, since TEXT NOT NULL, letters TEXT NOT NULL
        );
        INSERT INTO dead_letter_outcomes VALUES ('s', 't', 0, 0, 'None:1:-', 'replayed', 5, NULL, 'r', 't', 0, 9);
        INSERT INTO dead_letter_intents VALUES ('q', 's', 't', '{"0": 3}', '[["t", 0, 7, "m"]]');
    """)
    old.close()
    for _ in range(2):
        outcomes = Outcomes(path)
        try:
            for id in ("", "known by now"):
                assert outcomes.of("s", replace(a_letter(b"x"), topic_id=id)).state is LetterState.REPLAYED
                assert outcomes.of("s", replace(a_letter(b"xx"), topic_id=id)) == OPEN
            assert outcomes.intents("s") == [Intent("q", "t", {0: 3}, {Identity("t", 0, 7): "m"}, "")]
            found = {
                row[0]
                for row in sqlite3.connect(path).execute(
                    "SELECT name FROM sqlite_master WHERE type = 'index'"
                )
            }
            assert {"dead_letter_replays", "dead_letter_states"} <= found
        finally:
            outcomes.close()


def test_the_transactional_id_of_a_source_stays(outcomes: Outcomes) -> None:
    assert outcomes.transactional_id("s") == outcomes.transactional_id("s") != outcomes.transactional_id("u")


# -- repairs -----------------------------------------------------------------------------------------

RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7386)
def test_merge_patches_are_those_of_the_rfc(target: Any, patch: Any, expected: Any) -> None:
    made = merge_patch(json.dumps(patch))(a_letter(json.dumps(target).encode()))
    assert json.loads(made or b"") == expected


json_values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=10,
)


@given(some.dictionaries(some.text(), json_values))
def test_an_empty_patch_changes_nothing(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert json.loads(merge_patch("{}")(a_letter(text.encode())) or b"") == json.loads(text)


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_a_patch_needs_a_record_that_is_json(value: bytes | None) -> None:
    with pytest.raises(RepairError):
        merge_patch('{"a": 1}')(a_letter(value))


def test_a_patch_that_is_not_json_is_refused() -> None:
    with pytest.raises(OptionValueError, match="the patch is not JSON"):
        merge_patch("{price: 1}")


def test_a_function_is_found_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dlq_repairs.py").write_text(
        "def good(letter): return letter.value.upper()\n"
        "def text(letter): return 'no bytes'\n"
        "def broken(letter): return 1 / 0\n"
        "number = 5\n"
    )
    monkeypatch.chdir(tmp_path)
    assert function("dlq_repairs:good")(a_letter(b"x")) == b"X"
    assert checked(lambda letter: None)(a_letter(b"x")) is None
    with pytest.raises(RepairError, match="gave str"):
        function("dlq_repairs:text")(a_letter(b"x"))
    with pytest.raises(RepairError, match="ZeroDivisionError"):
        function("dlq_repairs:broken")(a_letter(b"x"))
    for wrong, message in (
        ("dlq_repairs", "names no function"),
        ("dlq_repairs:number", "has no function 'number'"),
        ("dlq_nowhere:f", "cannot be imported"),
    ):
        with pytest.raises(OptionValueError, match=message):
            function(wrong)


# -- places ------------------------------------------------------------------------------------------


def found(
    format: str, payload: bytes, message: str, field: str | None = None, **options: str
) -> bytes | None:
    given = {key.replace("_", "."): text for key, text in options.items()}
    span = locate(format, payload, message, field, ["id", "name", "at"], given)
    return payload[span[0] : span[1]] if span else None


@pytest.mark.parametrize(
    ("payload", "field", "expected"),
    [
        (b'{"id": "x"}', "id", b'"x"'),
        (b' { "a" : {"id" : 1}, "id"\t:\n[1, {"n": 5}] } ', "id[1].n", b"5"),
        (b'{"m": {"a.b": 1, "it\'s": 2}}', "m['a.b']", b"1"),
        ('{"größe": "ü", "id": "ä"}'.encode(), "id", '"ä"'.encode()),
        (b'{"other": 1}', "id", b"{"),
        (b'{"a": {"other": 1}}', "a.id", b"{"),
        (b'{"id": 1, "id": "x"}', "id", b'"x"'),
        (b'{"id": [1, 2]}', "id[5]", b"["),
        (b'{"id": ', "id", None),
        (b"", "id", None),
        (b"5", "id", b"5"),
    ],
)
def test_a_json_field_is_found_in_the_text(payload: bytes, field: str, expected: bytes | None) -> None:
    assert found("json", payload, f"{field}: wrong", field) == expected


@pytest.mark.parametrize(
    ("payload", "field", "expected"),
    [
        (b"1,x,3\n", "at", b"3"),
        (b"1,x,3", "id", b"1"),
        (b'1,"x,""y",3\r\n', "name", b'"x,""y"'),
        (b"1,,3", "name", b","),
        (b"1", "at", None),
    ],
)
def test_a_csv_field_is_found_in_the_line(payload: bytes, field: str, expected: bytes | None) -> None:
    assert found("csv", payload, f"{field}: wrong", field) == expected


def test_another_delimiter_is_minded() -> None:
    assert found("csv", b"1;x;3", "at: wrong", "at", csv_delimiter=";") == b"3"
    assert found("csv", b"1\tx\t3", "at: wrong", "at", csv_delimiter="\\t") == b"3"


def test_a_byte_or_a_character_in_the_message_is_the_place() -> None:
    assert found("avro", b"\x00\x01\x02", "not a datum of the schema: a boolean of 2, at byte 2") == b"\x02"
    assert found("avro", b"\x00\x01", "the payload ends inside of a value, at byte 2") == b"\x01"
    assert found("json", '"ü" x'.encode(), "not JSON: Extra data: line 1 column 5 (char 4)") == b"x"
    assert found("json", b"\xff\xfe", "invalid UTF-8 at byte 0") == b"\xff"
    assert found("protobuf", b"abc", "no place at all") is None
    assert found("avro", b"{}", "the first byte is 123, not the 0 that …") == b"{"
    assert (
        found("avro", b"\x00\x00\x00\x00\x07z", "schema id 7 is not known: the registry …")
        == b"\x00\x00\x00\x07"
    )


@given(some.binary(max_size=2_000), some.integers(0, 2_500), some.integers(0, 50))
def test_no_field_of_any_payload_breaks_the_search(payload: bytes, at: int, length: int) -> None:
    for format in ("json", "csv", "avro"):
        for field in (None, "id", "a[3].b['x']", "[[", "."):
            locate(format, payload, f"wrong at byte {at}" if length % 2 else "wrong", field, ["id"], {})
    lines, hidden = dump(payload, (at, at + length))
    assert sum(len(line.data) for line in lines) + hidden == len(payload)
    assert all(payload[line.at : line.at + len(line.data)] == line.data for line in lines)
    marked = {line.at + place for line in lines for place in line.marked}
    assert marked <= set(range(at, at + length))
    if length and at < len(payload):
        assert at in marked
