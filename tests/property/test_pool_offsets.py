"""Tracker, committer and metadata against a model: nothing beyond an unfinished record is ever committed."""

from __future__ import annotations

import tracemalloc
import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forebay.pool.committer import Committer
from forebay.pool.completed import BODY, MOST, VERSION, BadMetadataError, _checksum, decode, encode
from forebay.pool.lease import Lease
from forebay.pool.tracker import Tracker


@dataclass
class Message:
    """What a lease looks at of the client library's message."""

    number: int

    def offset(self) -> int:
        return self.number


@dataclass
class Done:
    offset: int
    done: bool = False


# -- the metadata ------------------------------------------------------------------------------------

_offsets = st.builds(
    lambda gaps, frontier: (frontier, [frontier + sum(gaps[: i + 1]) + i + 1 for i in range(len(gaps))]),
    st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 10**6)), max_size=300),
    st.integers(0, 2**62),
)


@given(_offsets, st.integers(0, 5000))
def test_metadata_is_read_back_exactly_and_what_does_not_fit_is_left_out_from_the_far_end(
    offsets: tuple[int, list[int]], limit: int
) -> None:
    frontier, done = offsets
    text, kept = encode(frontier, done, limit)
    assert len(text.encode()) <= limit
    assert list(decode(frontier, text)) == done[:kept]
    if limit >= 4096:
        assert kept == len(done) or len(text) > 2000  # only what is truly large is cut


def test_twenty_thousand_offsets_in_the_worst_pattern_fit_into_what_the_broker_takes() -> None:
    offsets = list(range(1, 20_001, 2))
    assert encode(0, offsets)[1] == len(offsets)


def test_offsets_far_beyond_the_limit_are_fewer_and_not_wrong() -> None:
    offsets = [n * n for n in range(1, 20_000)]
    text, kept = encode(0, offsets)
    assert 0 < kept < len(offsets)
    assert len(text) <= 4096
    assert list(decode(0, text)) == offsets[:kept]


@given(_offsets.filter(lambda o: o[1]), st.data())
def test_damaged_metadata_is_refused_or_read_back_exactly(offsets: tuple[int, list[int]], data: Any) -> None:
    frontier, done = offsets
    text, kept = encode(frontier, done)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.characters(max_codepoint=127)) + text[at + 1 :]
    try:
        found = decode(frontier, damaged)
    except BadMetadataError:
        return
    assert list(found) == done[:kept]


@pytest.mark.parametrize("text", ["x", "fb1:", "fb2:rAAAA", "fb1:rAAAA", "fb1:r!!!!", "fb1:xAAAAAA=="])
def test_metadata_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(BadMetadataError):
        decode(5, text)


def test_metadata_of_another_offset_is_refused() -> None:
    text, _ = encode(10, [12, 13])
    with pytest.raises(BadMetadataError):
        decode(11, text)


def written_by_hand(form: str, body: bytes) -> str:
    """A text with a right checksum, as whoever may commit for the group can write it."""
    return f"{VERSION}:{form}" + b64encode(_checksum(0, form, body) + body).decode()


def run_of(count: int) -> bytes:
    """One offset is missing, and so many are there, as two varints."""
    out = bytearray([1])
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*out, count])


@pytest.mark.parametrize(
    "text",
    [
        written_by_hand("B", zlib.compress(b"\xff" * 400_000)),  # 557 characters, 3.2 million offsets
        written_by_hand("B", zlib.compress(b"\xff" * 50_000_000)),
        written_by_hand("R", zlib.compress(b"\x01\x01" * 25_000_000)),
        written_by_hand("R", zlib.compress(b"\xff" * 25_000_000)),
        written_by_hand("r", run_of(MOST + 1)),
        written_by_hand("r", run_of(2**70)),
        written_by_hand("r", b"\x80" * 3_000),
        written_by_hand("r", b"\x01"),
        written_by_hand("r", b"\x01\x00"),
        written_by_hand("R", zlib.compress(b"\x01\x01" * 100)[:-6]),
    ],
    ids=lambda text: text[:8],
)
def test_a_short_text_does_not_unpack_to_more_than_is_ever_written(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadMetadataError):
            decode(0, text)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=8)
@given(st.integers(1, 9), st.integers(0, MOST + 10))
def test_whatever_is_written_is_within_the_bounds_of_what_is_read(gap: int, count: int) -> None:
    done = range(1, 1 + gap * count, gap)
    text, kept = encode(0, done, 1 << 30)
    assert kept <= MOST
    found = decode(0, text)
    assert (len(found), found.end) == (kept, done[kept - 1] + 1 if kept else 0)
    assert kept == count or count > 8 * BODY // gap // 2  # only what is truly much is cut


@given(_offsets, st.data())
def test_membership_is_that_of_a_set(offsets: tuple[int, list[int]], data: Any) -> None:
    frontier, done = offsets
    text, kept = encode(frontier, done)
    found = decode(frontier, text)
    near = st.sampled_from(done) if done else st.just(frontier)
    for offset in (frontier, data.draw(near), data.draw(near) + 1, data.draw(near) - 1):
        assert (offset in found) is (offset in done[:kept])


# -- the tracker -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=200), st.data())
def test_the_frontier_is_the_first_unfinished_delivered_offset(
    steps: list[tuple[int, bool]], data: Any
) -> None:
    """`steps`: how far the next delivered offset is (gaps are the broker's), and whether it is done."""
    tracker, records, offset = Tracker(), [], 0
    for gap, done in steps:
        offset += gap
        records.append(Done(offset, done))
    at = data.draw(st.integers(0, len(records)))
    for part in (records[:at], records[at:]):
        if part:
            tracker.deliver(part, part[-1].offset + 1)
        tracker.frontier()
    unfinished = [record.offset for record in records if not record.done]
    last = records[-1].offset + 1 if records else None
    assert tracker.frontier() == (unfinished[0] if unfinished else last)
    assert tracker.beyond() == [
        r.offset for r in records if r.done and unfinished and r.offset > unfinished[0]
    ]
    assert len(tracker) == (len([r for r in records if r.offset >= unfinished[0]]) if unfinished else 0)


def test_what_the_broker_passes_over_at_the_end_is_committed_once_all_is_done() -> None:
    tracker, record = Tracker(), Done(4)
    tracker.deliver([record], 5)
    tracker.passed(7)  # two markers of transactions
    assert tracker.frontier() == 4
    record.done = True
    assert tracker.frontier() == 7


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.data())
def test_a_record_that_is_reopened_is_unfinished_and_nothing_else_changes(gaps: list[int], data: Any) -> None:
    """Against a list: what is settled is gone for good, and of the rest any may turn out not to be done."""
    tracker, records = Tracker(keep=True), [Done(sum(gaps[: i + 1])) for i in range(len(gaps))]
    tracker.deliver(records, records[-1].offset + 1)
    settled = 0
    for _ in range(data.draw(st.integers(1, 12))):
        alive = [record for record in records if record.offset >= settled]
        chosen = data.draw(st.lists(st.sampled_from(alive), max_size=5)) if alive else []
        if data.draw(st.booleans()):
            for record in chosen:
                record.done = True
        else:
            tracker.reopen([record for record in chosen if record.done])
        unfinished = [record.offset for record in records if not record.done]
        frontier = tracker.frontier()
        assert frontier == (unfinished[0] if unfinished else tracker.position)
        assert frontier is not None
        assert tracker.beyond() == [r.offset for r in records if r.done and r.offset > frontier]
        if data.draw(st.booleans()):
            settled = frontier
            tracker.settled(frontier)


# -- tracker, committer and restart together ---------------------------------------------------------


class Group(RuleBasedStateMachine):
    """One partition whose records are delivered, done, failed, committed, lost and delivered anew."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.handled: set[int] = set()
        self.repeated = 0
        self.broker: tuple[int, str] = (-1, "")
        self.committer = Committer(interval_s=0, metadata_limit=120)
        self.sent: list[Any] | None = None
        self.assign()

    def assign(self) -> None:
        offset, metadata = self.broker
        self.lease = Lease("t", 0, offset, metadata)
        self.next = max(offset, 0)
        self.records: list[Any] = []
        self.at_risk = len(self.handled)

    @rule(gaps=st.lists(st.integers(1, 3), min_size=1, max_size=20))
    def produce(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.log.append((self.log[-1] if self.log else 0) + gap)

    @rule(count=st.integers(1, 30))
    def deliver(self, count: int) -> None:
        offsets = [offset for offset in self.log if offset >= self.next][:count]
        if not offsets:
            return
        assert not self.lease.goes_back(offsets)
        fresh = self.lease.receive([Message(offset) for offset in offsets], offsets)
        skipped = set(offsets) - {record.offset for record in fresh}
        assert skipped <= self.handled, "a record is left out that was never handled"
        self.records += fresh
        self.next = offsets[-1] + 1

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def finish_one(self, data: Any) -> None:
        record = self.records.pop(data.draw(st.integers(0, len(self.records) - 1)))
        self.handled.add(record.offset)
        record.done = True

    @precondition(lambda self: self.sent is None)
    @rule()
    def send(self) -> None:
        commits = self.committer.plan([self.lease])
        if commits:
            self.committer.sent(commits)
            self.sent = commits

    @precondition(lambda self: self.sent is not None)
    @rule(arrives=st.booleans(), answered=st.booleans(), too_large=st.booleans())
    def answer(self, arrives: bool, answered: bool, too_large: bool) -> None:
        assert self.sent is not None
        (commit,) = self.sent
        self.sent = None
        if arrives:
            self.broker = commit.offset, commit.metadata
        if arrives and answered:
            self.committer.confirmed()
        else:
            self.committer.refused("away", too_large=too_large and not arrives)

    @precondition(lambda self: self.sent is None)
    @rule(settled=st.booleans())
    def revoke_or_crash(self, settled: bool) -> None:
        late = self.records
        self.lease.closing = True
        if settled:
            for commit in self.committer.plan([self.lease]):
                self.broker = commit.offset, commit.metadata
        self.assign()
        for record in late:  # results that come too late are nobody's
            record.done = True

    @invariant()
    def nothing_unfinished_is_committed(self) -> None:
        offset, metadata = self.broker
        covered = {o for o in self.log if o < offset} | set(decode(max(offset, 0), metadata))
        assert covered <= self.handled

    def teardown(self) -> None:
        """Once everything is delivered and finished, everything was handled, and the offset is the end."""
        self.assign()
        offsets = [offset for offset in self.log if offset >= self.next]
        if offsets:
            for record in self.lease.receive([Message(offset) for offset in offsets], offsets):
                self.handled.add(record.offset)
                record.done = True
            assert self.lease.tracker.frontier() == self.log[-1] + 1
        assert self.handled == set(self.log)


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_commit_is_due_after_so_many_records_and_not_before() -> None:
    committer = Committer(interval_s=1000, batch=10)
    assert not committer.due(9)
    assert committer.due(10)
    committer.plan([], 10)
    assert not committer.due(19)


def test_a_commit_that_failed_is_not_repeated_at_once_and_one_at_a_time_is_under_way() -> None:
    committer = Committer(interval_s=0)
    lease = Lease("t", 0)
    for record in lease.receive([Message(0)], [0]):
        record.done = True
    commits = committer.plan([lease])
    committer.sent(commits)
    assert not committer.due(1)
    committer.refused("away")
    assert not committer.due(1)
    assert lease.committed is None
    assert [c.offset for c in committer.plan([lease])] == [1]


def test_what_is_committed_already_is_not_committed_again() -> None:
    committer = Committer(interval_s=0)
    lease = Lease("t", 0)
    for record in lease.receive([Message(0)], [0]):
        record.done = True
    committer.sent(committer.plan([lease]))
    committer.confirmed()
    assert committer.plan([lease]) == []
