"""Letters come back: their own bytes or repaired ones, each once, with what became of it written down."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import inside
import letters as make
import pytest
from confluent_kafka import TopicPartition
from letters import BINARY, BROKEN, GOOD, NO_ID, TEXT_PRICE, Case
from sessions import connect
from support import Cluster
from waiting import eventually

import forebay
from forebay.deadletter.letter import Letter
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.replay import Unsure


@pytest.fixture
def case(cluster: Cluster) -> Case:
    return make.case(cluster)


@pytest.fixture
def session(case: Case, tmp_path: Path) -> Iterator[forebay.Session]:
    with connect(tmp_path / "home") as made:
        made.execute(case.statement())
        yield made


def states(session: forebay.Session, case: Case) -> dict[str, str]:
    return {entry.id: str(entry.outcome.state) for entry in session.dead_letters(case.source)}


def test_a_letter_is_read_once_however_often_it_was_written(session: forebay.Session, case: Case) -> None:
    letters = case.fail(session, [BROKEN, GOOD, NO_ID])
    case.write(letters)
    case.write(letters)
    found = {entry.identity for entry in session.dead_letters(case.source)}
    assert found == {letter.identity for letter in letters}
    assert len(list(session.dead_letters(case.source))) == 2


def test_a_replay_sends_the_record_byte_for_byte(session: forebay.Session, case: Case) -> None:
    case.fail(
        session, [BINARY], key=b"k\x00\xff", headers=[("h", b"\x01"), ("h", None), ("forebay.headers", b"9")]
    )
    report = session.dead_letters(case.source).replay()
    assert (report.sent, report.selected, report.not_open) == (1, 1, 0)
    first, again = case.cluster.records(case.topic)
    assert (again.key(), again.value()) == (first.key(), first.value()) == (b"k\x00\xff", BINARY)
    assert again.partition() == first.partition()
    headers = again.headers()
    assert headers[:3] == first.headers()
    told = dict(headers[3:])
    assert told["forebay.replayed.from"] == f"{case.topic}/{first.partition()}/{first.offset()}".encode()
    assert set(states(session, case).values()) == {"replayed"}


def test_replaying_twice_sends_nothing_twice(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID, TEXT_PRICE])
    assert session.dead_letters(case.source).replay().sent == 3
    second = session.dead_letters(case.source).replay()
    assert (second.sent, second.not_open) == (0, 3)
    assert len(case.cluster.records(case.topic)) == 6


def test_a_dry_run_says_what_it_would_do_and_does_nothing(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID])
    report = session.dead_letters(case.source).replay(dry_run=True)
    assert (report.sent, report.bytes, len(report.examples)) == (2, len(BROKEN) + len(NO_ID), 2)
    assert len(case.cluster.records(case.topic)) == 2
    assert set(states(session, case).values()) == {"open"}


def test_a_condition_selects(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID, TEXT_PRICE, TEXT_PRICE])
    letters = session.dead_letters(case.source)
    assert letters.where("error_kind = 'TypeConversion' AND field = 'price'").replay().sent == 2
    assert letters.where("value LIKE '%pri' OR offset < 0").replay().sent == 1
    assert sorted(states(session, case).values()) == ["open", "replayed", "replayed", "replayed"]


def test_a_merge_patch_repairs_and_keeps_the_digits_of_the_rest(session: forebay.Session, case: Case) -> None:
    exact = b'{"id": 12345678901234567890123, "price": "x", "rate": 0.10000000000000000000001}'
    case.fail(session, [exact, BROKEN])
    report = session.dead_letters(case.source).replay(patch='{"price": 1.5, "note": {"by": "hand"}}')
    assert report.sent == 1
    assert report.problem_count == 1
    assert "JSON" in report.problems[0][1]
    repaired = [message.value() for message in case.cluster.records(case.topic)][-1]
    values = {message.value() for message in case.cluster.records(case.topic)} - {exact, BROKEN}
    assert values == {
        b'{"id": 12345678901234567890123, "price": 1.5, "rate": 0.10000000000000000000001, "note": {"by": "hand"}}'
    }, repaired
    assert sorted(states(session, case).values()) == ["open", "replayed"]


def test_a_function_repairs_or_leaves_a_letter_open(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID, TEXT_PRICE, BINARY])

    def mend(letter: Letter) -> bytes | None:
        if letter.kind == "MalformedPayload":
            return None
        found = json.loads(letter.value or b"")
        if found["price"] == "cheap":
            raise KeyError("cheap")
        return json.dumps({"id": 0, **found}).encode()

    report = session.dead_letters(case.source).replay(repair=mend)
    assert (report.sent, report.left, report.problem_count) == (1, 2, 1)
    assert "KeyError" in report.problems[0][1]
    assert json.dumps({"id": 0, "price": 1.5}).encode() in {
        m.value() for m in case.cluster.records(case.topic)
    }


def test_a_replay_to_another_topic_leaves_the_source_alone(session: forebay.Session, case: Case) -> None:
    other = case.cluster.make_topic(1)
    case.fail(session, [BROKEN], key=b"k")
    report = session.dead_letters(case.source).replay(to=other)
    assert report.target == other
    assert [(m.key(), m.value()) for m in case.cluster.records(other)] == [(b"k", BROKEN)]
    assert len(case.cluster.records(case.topic)) == 1


def test_a_cut_letter_is_replayed_whole_and_checked(session: forebay.Session, case: Case) -> None:
    long = b'{"id": 1, "price": "' + b"x" * 5_000
    [message] = case.cluster.produce(case.topic, [long])
    [letter] = case.letters(session, [message])
    case.write([letter.cut(100)])
    [other] = case.cluster.produce(case.topic, [BROKEN])
    [wrong] = case.letters(session, [other])
    case.write([Letter(**{**vars(wrong), "value": b"{", "sha256": "0" * 64})])
    report = session.dead_letters(case.source).replay()
    assert report.sent == 1
    assert "is not it" in report.problems[0][1]
    assert [m.value() for m in case.cluster.records(case.topic)].count(long) == 2


def test_a_cut_letter_whose_record_is_gone_stays_open(session: forebay.Session, case: Case) -> None:
    [message] = case.cluster.produce(case.topic, [BROKEN * 10])
    [letter] = case.letters(session, [message])
    case.write([letter.without_value()])
    gone = TopicPartition(case.topic, message.partition(), message.offset() + 1)
    [deleted] = case.cluster.admin.delete_records([gone]).values()
    deleted.result(30)
    report = session.dead_letters(case.source).replay()
    assert report.sent == 0
    assert "no longer has" in report.problems[0][1]
    assert list(states(session, case).values()) == ["open"]


def test_a_record_that_fails_again_is_tied_to_its_first_letter(session: forebay.Session, case: Case) -> None:
    [first] = case.fail(session, [BROKEN])
    session.dead_letters(case.source).replay()
    again = case.cluster.records(case.topic)[-1]
    [second] = case.letters(session, [again])
    case.write([second])
    found = {entry.id: entry for entry in session.dead_letters(case.source)}
    one, two = (
        found[f"{case.topic}/{first.partition}/{first.offset}"],
        found[f"{case.topic}/{second.partition}/{second.offset}"],
    )
    assert str(one.outcome.state) == "failed_again"
    assert two.id in (one.outcome.reason or "")
    assert (str(two.outcome.state), two.replayed_from) == ("open", one.id)
    # The second may be replayed; the first is not sent a third time.
    assert session.dead_letters(case.source).replay().sent == 1


def test_discarded_letters_are_not_replayed(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID])
    letters = session.dead_letters(case.source)
    assert letters.where("error_kind = 'MalformedPayload'").discard("junk", dry_run=True) == 1
    assert letters.where("error_kind = 'MalformedPayload'").discard("junk") == 1
    assert letters.replay().sent == 1
    reasons = {str(e.outcome.state): e.outcome.reason for e in session.dead_letters(case.source)}
    assert reasons == {"discarded": "junk", "replayed": None}
    assert letters.where("state = 'open'").discard("rest") == 0


def test_what_is_reopened_is_replayed_and_what_was_replayed_is_not_reopened(
    session: forebay.Session, case: Case
) -> None:
    case.fail(session, [BROKEN, NO_ID])
    letters = session.dead_letters(case.source)
    letters.where("error_kind = 'MalformedPayload'").discard("junk")
    assert letters.replay().sent == 1
    assert letters.reopen(dry_run=True) == 1
    assert sorted(states(session, case).values()) == ["discarded", "replayed"]
    done = session.sql(f"REOPEN DEAD LETTERS FROM {case.source} WHERE state_reason = 'junk'").rows()
    assert done[0]["reopened"] == 1
    assert sorted(states(session, case).values()) == ["open", "replayed"]
    assert letters.replay().sent == 1
    assert letters.reopen() == 0


def test_show_of_a_cut_letter_reads_the_rest_from_the_topic(session: forebay.Session, case: Case) -> None:
    long = b'{"pad": "' + b"x" * 5_000 + b'", "id": 1, "price": "cheap"}'
    [message] = case.cluster.produce(case.topic, [long])
    [letter] = case.letters(session, [message])
    case.write([letter.cut(100)])
    id = f"{letter.topic}/{letter.partition}/{letter.offset}"
    found = session.dead_letters(case.source).explain(id)
    assert found.span is not None
    assert long[slice(*found.span)] == b'"cheap"'
    assert found.now == "refused, for the same reason"
    gone = TopicPartition(case.topic, message.partition(), message.offset() + 1)
    [deleted] = case.cluster.admin.delete_records([gone]).values()
    deleted.result(30)
    found = session.dead_letters(case.source).explain(id)
    assert found.now.startswith("not tried: the letter has only a part")


def test_a_topic_that_does_not_exist_is_not_made(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN])
    with pytest.raises(forebay.errors.UnknownTopicError, match="there is no topic 'nowhere'"):
        session.dead_letters(case.source).replay(to="nowhere")
    assert list(states(session, case).values()) == ["open"]


def test_two_replays_at_once_are_one_and_a_refusal(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN])
    letters = session.dead_letters(case.source)
    with inside.alone(letters, "replay"), pytest.raises(forebay.errors.AlreadyRunningError):
        letters.replay()
    assert letters.replay().sent == 1


class _KilledError(BaseException):
    """Where a test ends a replay as SIGKILL would: nothing after it is done."""


@pytest.mark.parametrize("crash", ["intend", "settle"])
def test_a_replay_that_died_is_taken_up_where_it_was(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    """Dead after its intent was written down: nothing was sent. Dead before its end was: everything was."""
    case.fail(session, [BROKEN, NO_ID, TEXT_PRICE])
    real = {"intend": Outcomes.intend, "settle": Outcomes.settle}

    def dying(*given: Any) -> None:
        if crash == "intend":
            real["intend"](*given)
        raise _KilledError

    monkeypatch.setattr(Outcomes, crash, dying)
    with pytest.raises(_KilledError):
        session.dead_letters(case.source).replay()
    monkeypatch.undo()
    assert set(states(session, case).values()) == {"open"}
    second = session.dead_letters(case.source).replay()
    assert (second.sent, second.found) == ((3, 0) if crash == "intend" else (0, 3))
    assert len(case.cluster.records(case.topic)) == 6
    assert {entry.outcome.target_topic for entry in session.dead_letters(case.source)} == {case.topic}
    assert session.dead_letters(case.source).replay().sent == 0


def test_what_another_transaction_hides_is_waited_for(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that died after its commit, behind somebody's open transaction: looking too early would send twice."""
    case.fail(session, [BROKEN], partition=0)
    other = case.cluster.transactional_producer()
    other.begin_transaction()
    other.produce(case.topic, GOOD, partition=0)
    other.flush(30)

    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch)
    looks: list[int] = []

    def looking(*given: Any) -> Any:
        looks.append(1)
        if len(looks) == 2:
            other.commit_transaction(30)
        return real(*given)

    real = inside.break_replay(monkeypatch, "look", looking)
    report = session.dead_letters(case.source).replay()
    assert (report.sent, report.found) == (0, 1)
    assert len(looks) >= 2


def killed_before_it_wrote_down_what_it_sent(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch, to: str | None = None
) -> None:
    def dying(*given: Any) -> None:
        raise _KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Outcomes, "settle", dying)
        with pytest.raises(_KilledError):
            session.dead_letters(case.source).replay(to=to)


def test_one_letter_found_tells_of_all_of_its_transaction_also_of_those_that_another_one_hides(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.fail(session, [BROKEN], partition=0)
    case.fail(session, [NO_ID], partition=1)
    other = case.cluster.transactional_producer()
    other.begin_transaction()
    other.produce(case.topic, GOOD, partition=1)
    other.flush(30)
    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch)
    eventually(lambda: len(case.cluster.records(case.topic)) == 3, "what is sent to partition 0 is seen")
    report = session.dead_letters(case.source).replay()  # while that transaction is open
    assert (report.sent, report.found) == (0, 2)
    other.commit_transaction(30)
    assert set(states(session, case).values()) == {"replayed"}
    sent = Counter(message.value() for message in case.cluster.records(case.topic))
    assert sent == {BROKEN: 2, NO_ID: 2, GOOD: 1}


def test_one_letter_found_tells_of_all_of_its_transaction_also_of_those_that_retention_took(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.fail(session, [BROKEN], partition=0)
    case.fail(session, [NO_ID], partition=1)
    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch)
    eventually(lambda: len(case.cluster.records(case.topic)) == 4, "what was sent is seen")
    [deleted] = case.cluster.admin.delete_records([TopicPartition(case.topic, 1, -1)]).values()
    deleted.result(30)
    report = session.dead_letters(case.source).replay()
    assert (report.sent, report.found) == (0, 2)
    found = {e.identity[1]: e.outcome for e in session.dead_letters(case.source)}
    assert {str(outcome.state) for outcome in found.values()} == {"replayed"}
    assert (found[0].target_partition, found[1].target_partition) == (0, None)


COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.001",
    "min_compaction_lag_ms": "0",
    "max_compaction_lag_ms": "100",
}


@pytest.mark.parametrize("overwritten", ["one", "all"])
def test_what_compaction_took_of_a_killed_replay_is_not_sent_again(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch, overwritten: str
) -> None:
    """Of a transaction of which one record is left, all were sent; where none is left, nobody can tell."""
    target = case.cluster.make_topic(1, **COMPACTED)
    case.fail(session, [BROKEN], partition=0, key=b"first")
    case.fail(session, [NO_ID], partition=1, key=b"second")
    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch, target)
    keys = [b"first"] if overwritten == "one" else [b"first", b"second"]

    def cleaned() -> bool:
        for key in keys:
            case.cluster.produce(target, [GOOD], key=key)  # also so that the segment before it is rolled
        return len([m for m in case.cluster.records(target) if m.value() != GOOD]) == 2 - len(keys)

    eventually(cleaned, "the log cleaner has run", timeout=90)
    if overwritten == "one":
        report = session.dead_letters(case.source).replay(to=target)
        assert (report.sent, report.found) == (0, 2)
        return
    with pytest.raises(forebay.errors.OffsetOutOfRangeError, match="cannot be known any more"):
        session.dead_letters(case.source).replay(to=target)
    assert session.dead_letters(case.source).replay(to=target, unsure="sent").found == 2
    assert {m.value() for m in case.cluster.records(target)} == {GOOD}


@pytest.mark.parametrize("reached", ["nothing", "the broker"])
def test_a_compacted_topic_that_never_had_a_killed_replay_has_it_sent(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch, reached: str
) -> None:
    """Killed before it sent anything, or before its transaction was committed: the topic shows that nothing is missing."""
    target = case.cluster.make_topic(1, cleanup_policy="compact")
    case.cluster.produce(target, [GOOD], key=b"k")
    case.fail(session, [BROKEN], key=b"k")

    def dying(*given: Any) -> None:
        raise _KilledError

    with monkeypatch.context() as patched:
        if reached == "nothing":
            real = Outcomes.intend
            patched.setattr(Outcomes, "intend", lambda *given: (real(*given), dying()))
        else:
            inside.break_replay(patched, "commit", dying)
        with pytest.raises(_KilledError):
            session.dead_letters(case.source).replay(to=target)
    case.cluster.produce(target, [GOOD], key=b"other")
    report = session.dead_letters(case.source).replay(to=target)
    assert (report.sent, report.found) == (1, 0)
    assert [m.value() for m in case.cluster.records(target)].count(BROKEN) == 1


def test_what_was_sent_to_a_topic_that_was_made_again_since_is_asked_and_not_guessed(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = case.cluster.make_topic(1)
    case.fail(session, [BROKEN])
    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch, target)
    case.cluster.delete_topic(target)
    case.cluster.make_topic(1, name=target)
    case.cluster.produce(target, [GOOD, GOOD])
    with pytest.raises(forebay.errors.OffsetOutOfRangeError, match="cannot be known any more"):
        session.dead_letters(case.source).replay(to=target)
    assert session.dead_letters(case.source).replay(to=target, unsure="unsent").sent == 1


def test_a_source_that_was_dropped_and_made_again_sends_nothing_twice(
    session: forebay.Session, case: Case
) -> None:
    case.fail(session, [BROKEN, NO_ID])
    assert session.dead_letters(case.source).replay().sent == 2
    session.sql(f"DROP SOURCE {case.source}")
    session.execute(case.statement())
    assert session.dead_letters(case.source).replay().sent == 0


def test_letters_of_a_topic_that_was_made_again_are_open(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN], partition=0)
    assert session.dead_letters(case.source).replay().sent == 1
    session.sql(f"DROP SOURCE {case.source}")
    case.cluster.delete_topic(case.topic)
    case.cluster.delete_topic(case.dlq)
    case.cluster.make_topic(2, name=case.topic)
    case.cluster.make_topic(2, name=case.dlq)
    session.execute(case.statement())
    [letter] = case.fail(session, [NO_ID], partition=0)
    assert letter.offset == 0
    assert list(states(session, case).values()) == ["open"]
    assert session.dead_letters(case.source).replay().sent == 1


@pytest.mark.parametrize("unsure", ["sent", "unsent"])
def test_what_nobody_can_tell_any_more_is_asked_and_not_guessed(
    session: forebay.Session, case: Case, monkeypatch: pytest.MonkeyPatch, unsure: Unsure
) -> None:
    case.fail(session, [BROKEN], partition=0)

    killed_before_it_wrote_down_what_it_sent(session, case, monkeypatch)
    case.cluster.records(case.topic)
    [deleted] = case.cluster.admin.delete_records([TopicPartition(case.topic, 0, -1)]).values()
    deleted.result(30)
    with pytest.raises(forebay.errors.OffsetOutOfRangeError, match="cannot be known any more") as refused:
        session.dead_letters(case.source).replay()
    assert "--unsure sent" in refused.value.remedy
    report = session.dead_letters(case.source).replay(unsure=unsure)
    assert (report.found, report.sent) == ((1, 0) if unsure == "sent" else (0, 1))
    assert list(states(session, case).values()) == ["replayed"]


def test_a_record_that_the_target_refuses_is_named_and_nothing_of_its_transaction_is_sent(
    session: forebay.Session, case: Case
) -> None:
    small = case.cluster.make_topic(1, max_message_bytes="1000")
    [large, _] = case.fail(session, [b"{" * 5_000, NO_ID], partition=0)
    with pytest.raises(forebay.errors.ReplayFailedError, match="does not take the record of") as refused:
        session.dead_letters(case.source).replay(to=small)
    id = f"{case.topic}/0/{large.offset}"
    assert id in str(refused.value)
    assert case.cluster.records(small) == []
    assert set(states(session, case).values()) == {"open"}
    assert session.dead_letters(case.source).where(f"id <> '{id}'").replay(to=small).sent == 1


def make_old(session: forebay.Session, days: int = 500) -> None:
    """What was done with letters, as if it had been done so long ago; and nobody has looked since."""
    with closing(sqlite3.connect(session.home / "catalog.db", isolation_level=None)) as db:
        for table in ("dead_letter_outcomes", "dead_letter_history"):
            db.execute(f"UPDATE {table} SET at_ms = at_ms - ?", (days * 86_400_000,))
    for looked in (session.home / "dead_letters").glob("*.looked"):
        looked.unlink()


def delete_records(case: Case, topic: str) -> None:
    """All that is in a topic is gone, as when its retention has passed."""
    ends = case.cluster.watermarks(topic)
    for future in case.cluster.admin.delete_records(
        [TopicPartition(topic, partition, end) for partition, (_, end) in ends.items()]
    ).values():
        future.result(30)


def test_what_became_of_a_letter_is_forgotten_when_it_is_old_and_nobody_can_meet_the_letter_again(
    session: forebay.Session, case: Case
) -> None:
    letters = session.dead_letters(case.source)

    def known() -> int:
        with closing(Outcomes(session.home / "catalog.db")) as outcomes:
            return sum(outcomes.counts().values())

    case.fail(session, [BROKEN, NO_ID])
    assert letters.discard("load test") == 2
    make_old(session)
    letters.reopen(dry_run=True)
    assert known() == 2  # a view that is made now would write their letters again

    delete_records(case, case.topic)
    make_old(session, 0)
    letters.reopen(dry_run=True)
    assert known() == 2  # their letters are there
    assert set(states(session, case).values()) == {"discarded"}

    delete_records(case, case.dlq)
    letters.reopen(dry_run=True)
    assert known() == 2  # it was looked a moment ago
    make_old(session, 0)
    case.fail(session, [TEXT_PRICE])
    assert letters.discard("another") == 1
    assert known() == 1
    assert list(states(session, case).values()) == ["discarded"]
    with closing(sqlite3.connect(session.home / "catalog.db")) as db:
        assert db.execute("SELECT count(*) FROM dead_letter_history").fetchone() == (1,)
