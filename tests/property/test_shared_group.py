"""Partitions that move between homes, in every order: no record is lost, and none is twice in one home.

A model of the group and of its members, on the real bookkeeping: `Ownership` and `Assignment` of each home, and positions
that jump. Homes are killed at each point of a batch, and frozen so that the group goes on without them.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from forebay.kafka.offsets import KafkaPosition, Range, lost_between, ranges_between, without
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.share import Assignment, Ownership, ShareFolder, joined

PARTITIONS: list[TopicPartition] = [("t", number) for number in range(2)]
HOMES = 2
NOTHING = KafkaPosition({})
STEPS = 200
Record = tuple[TopicPartition, int]


@dataclass
class Home:
    folder: ShareFolder
    owned: Ownership = field(default_factory=Ownership)
    alive: bool = True
    frozen: bool = False  # the group has given it up, and it does not know
    position: KafkaPosition = NOTHING  # what the checkpoint has
    batch: KafkaPosition | None = None  # in flight
    in_table: bool = False  # ... and the table has it
    table: list[Record] = field(default_factory=list)

    def records(self, end: KafkaPosition) -> list[Record]:
        return records(ranges_between(self.position, end, self.folder.elsewhere()))


def records(ranges: list[Range]) -> list[Record]:
    return [((r.topic, r.partition), at) for r in ranges for at in range(r.start, r.end)]


class Group:
    def __init__(self) -> None:
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.owner: dict[TopicPartition, int] = {}
        root = Path(tempfile.mkdtemp(prefix="forebay-share-"))
        self.homes = [Home(ShareFolder(root / str(number))) for number in range(HOMES)]
        for home in self.homes:
            home.folder.make()
        for key in PARTITIONS:
            self._give(key, 0)
        self.may_repeat: set[Record] = set()  # in a table, and not committed when their home lost them

    # -- what happens --------------------------------------------------------------------------------

    def produce(self, key: TopicPartition, count: int) -> None:
        self.ends[key] += count

    def work(self, number: int, steps: int, most: int) -> None:
        """A part of a batch, or all of it."""
        self.plan(number, most)
        for step in (self.keep, self.checkpoint, self.commit)[: steps - 1]:
            step(number)

    def plan(self, number: int, most: int) -> None:
        home = self.homes[number]
        if not home.alive or home.batch is not None:
            return
        assignment = home.owned.assignment()
        jumps = assignment.elsewhere(home.position)
        begins = {key: max(home.position.next.get(key, 0), at) for key, at in assignment.partitions.items()}
        reach = {key: min(self.ends[key], at + most) for key, at in begins.items()}
        if any(reach[key] > home.position.next.get(key, 0) for key in reach):
            home.batch = KafkaPosition(
                {**home.position.next, **reach}, elsewhere=jumps, assigned=assignment.number
            )

    def keep(self, number: int) -> None:
        """The table takes the batch, unless its partitions have gone: then it is given up."""
        home = self.homes[number]
        if not home.alive or home.batch is None or home.in_table:
            return
        touched = {key for key, _ in home.records(home.batch)}
        assert home.batch.assigned is not None
        lost = home.owned.lost_of(touched, home.batch.assigned)
        if lost or (home.frozen and touched):  # the brokers refuse the commit of who was given up
            home.batch = None
            return
        found = home.records(home.batch)
        home.folder.add_elsewhere(home.batch.elsewhere)
        home.table += found
        home.in_table = True

    def checkpoint(self, number: int) -> None:
        home = self.homes[number]
        if home.alive and home.in_table and home.batch is not None:
            assert not lost_between(home.position, home.batch), "what others have read is no loss"
            home.position, home.batch, home.in_table = home.batch, None, False

    def commit(self, number: int) -> None:
        home = self.homes[number]
        if home.alive and not home.frozen:
            for key, at in home.owned.at.items():
                if home.position.next.get(key, -1) >= at:
                    self.committed[key] = home.position.next[key]

    def move(self, key: TopicPartition, number: int) -> None:
        """A rebalance: the owner finishes its batch and commits, then the partition goes."""
        self._take_away(key)
        self._give(key, number)

    def freeze(self, number: int) -> None:
        """Silent for longer than its session: its partitions are free, and it learns of it later."""
        home = self.homes[number]
        if home.alive:
            home.frozen = True
            self._forget(number)

    def notice(self, number: int) -> None:
        home = self.homes[number]
        if home.frozen:
            home.owned, home.frozen = home.owned.gone(home.owned.since), False

    def kill(self, number: int) -> None:
        home = self.homes[number]
        home.alive = home.frozen = False
        self._forget(number)

    def restart(self, number: int) -> None:
        """A batch that the table may have is repeated, which changes nothing in it; any other is planned anew."""
        home = self.homes[number]
        if not home.alive:
            home.alive = True
            if home.in_table and home.batch is not None:
                home.position = home.batch
            home.batch, home.in_table = None, False
            home.owned = Ownership(home.owned.number)

    # -- parts ---------------------------------------------------------------------------------------

    def _take_away(self, key: TopicPartition) -> None:
        number = self.owner.pop(key, None)
        if number is None:
            return
        home = self.homes[number]
        home.owned = home.owned.revoking([key])
        self.keep(number)
        self.checkpoint(number)
        if home.position.next.get(key, -1) >= home.owned.at[key]:
            self.committed[key] = home.position.next[key]
        home.owned = home.owned.gone([key])

    def _give(self, key: TopicPartition, number: int) -> None:
        home = self.homes[number]
        if home.alive and not home.frozen:
            self.owner[key] = number
            home.owned = home.owned.assigned([key]).settled({key: self.committed[key]})

    def _forget(self, number: int) -> None:
        home = self.homes[number]
        self.owner = {key: who for key, who in self.owner.items() if who != number}
        self.may_repeat |= {(key, at) for key, at in home.table if at >= self.committed[key]}

    # -- what must hold ------------------------------------------------------------------------------

    def check(self) -> None:
        self.no_home_has_a_record_twice()
        self.two_homes_have_a_record_only_where_one_was_killed_or_frozen()
        self.a_view_that_comes_later_has_what_its_home_has()

    def no_home_has_a_record_twice(self) -> None:
        for home in self.homes:
            assert len(home.table) == len(set(home.table))

    def two_homes_have_a_record_only_where_one_was_killed_or_frozen(self) -> None:
        everything = [record for home in self.homes for record in home.table]
        twice = {record for record, times in Counter(everything).items() if times > 1}
        assert twice <= self.may_repeat

    def a_view_that_comes_later_has_what_its_home_has(self) -> None:
        for home in self.homes:
            end = home.batch if home.in_table and home.batch is not None else home.position
            assert sorted(records(ranges_between(NOTHING, end, home.folder.elsewhere()))) == sorted(
                home.table
            )

    def end(self) -> None:
        """One that lives reads the rest: then every record is in some table."""
        for number in range(HOMES):
            self.notice(number)
            self.restart(number)
        for key in PARTITIONS:
            self.move(key, 0)
        for _ in range(3 + sum(self.ends.values())):
            self.keep(0)
            self.checkpoint(0)
            self.plan(0, 4)
        found = {record for home in self.homes for record in home.table}
        assert found == {(key, at) for key, end in self.ends.items() for at in range(end)}
        self.no_home_has_a_record_twice()


@given(st.randoms(use_true_random=False))
def test_whatever_happens_to_its_members_a_group_loses_no_record_and_no_home_has_one_twice(
    chance: random.Random,
) -> None:
    """A long walk: what goes wrong takes several steps in a certain order."""
    group = Group()
    for _ in range(STEPS):
        number, key = chance.randrange(HOMES), chance.choice(PARTITIONS)
        happens = chance.choices(
            (group.work, group.produce, group.move, group.freeze, group.notice, group.kill, group.restart),
            (8, 4, 3, 1, 2, 1, 2),
        )[0]
        if happens == group.work:
            group.work(number, chance.randint(1, 4), chance.randint(1, 4))
        elif happens == group.produce:
            group.produce(key, chance.randint(1, 5))
        elif happens == group.move:
            group.move(key, number)
        else:
            happens(number)
        group.check()
    group.end()


def test_a_batch_is_not_ours_when_its_partition_went_and_came_back_since_it_was_planned() -> None:
    key, other = PARTITIONS
    owned = Ownership().assigned([key, other]).settled({key: 0, other: 0})
    planned = owned.assignment().number
    assert owned.lost_of([key, other], planned) == []
    assert owned.revoking([key]).lost_of([key], planned) == [], "the batch in flight is finished first"
    assert key not in owned.revoking([key]).assignment().partitions
    back = owned.gone([key]).assigned([key]).settled({key: 5})
    assert back.lost_of([key, other], planned) == [key]
    assert back.lost_of([key, other], back.assignment().number) == []


span = st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))
spans = st.lists(span, max_size=6)


@given(st.integers(0, 40), st.integers(0, 40), spans)
def test_a_range_without_spans_is_each_offset_that_is_in_none(
    start: int, end: int, given: list[tuple[int, int]]
) -> None:
    left = without(Range("t", 0, start, end), given)
    expected = [at for at in range(start, end) if not any(a <= at < b for a, b in given)]
    assert [at for item in left for at in range(item.start, item.end)] == expected
    assert {at for a, b in joined(given) for at in range(a, b)} == {
        at for a, b in given for at in range(a, b)
    }


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), st.integers(0, 99)))
def test_an_assignment_survives_its_file(partitions: dict[TopicPartition, int]) -> None:
    assignment = Assignment(7, partitions)
    assert Assignment.from_json(assignment.to_json().encode()) == assignment
