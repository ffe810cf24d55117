"""Positions and ranges: written down, divided and cut without losing or doubling a record."""

from __future__ import annotations

import json
import pickle
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from forebay.kafka.offsets import (
    MIN_PIECE,
    SMALL_BATCH,
    KafkaPosition,
    KafkaSplit,
    Range,
    allocate,
    lost_between,
    plan_splits,
    ranges_between,
)
from forebay.kafka.partitions import TopicPartition

topics = st.sampled_from(["a", "b", "orders-eu", "é"])
partitions = st.tuples(topics, st.integers(0, 20))
offsets = st.integers(0, 2**60)


@st.composite
def positions(draw: st.DrawFn) -> KafkaPosition:
    following = draw(st.dictionaries(partitions, offsets, max_size=8))
    ids = {topic: draw(st.text(max_size=5)) for topic in sorted({topic for topic, _ in following})}
    first = {key: draw(st.integers(0, following[key])) for key in following if draw(st.booleans())}
    return KafkaPosition(following, ids, first)


@st.composite
def ranges(draw: st.DrawFn, largest: int = 2**40, most: int = 12) -> list[Range]:
    keys = draw(st.lists(partitions, unique=True, max_size=most))
    found = []
    for topic, number in sorted(keys):
        start = draw(st.integers(0, 2**40))
        found.append(
            Range(topic, number, start, start + draw(st.integers(0, draw(st.sampled_from([3, 99, largest])))))
        )
    return found


@given(positions())
def test_a_position_survives_the_offset_log(position: KafkaPosition) -> None:
    assert KafkaPosition.from_json(json.loads(json.dumps(position.to_json()))) == position


@given(positions(), st.randoms(use_true_random=False))
def test_equal_positions_are_equal_texts(position: KafkaPosition, shuffler: random.Random) -> None:
    def shuffled(items: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        pairs = list(items.items())
        shuffler.shuffle(pairs)
        return dict(pairs)

    other = KafkaPosition(shuffled(dict(position.next)), position.ids, shuffled(dict(position.first)))
    assert json.dumps(other.to_json()) == json.dumps(position.to_json())
    again = KafkaPosition.from_json(json.loads(json.dumps(position.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(position.to_json())


def test_partitions_stand_in_the_order_of_their_numbers() -> None:
    text = json.dumps(KafkaPosition({("t", 10): 1, ("t", 9): 2, ("t", 0): 3}, {"t": "id"}).to_json())
    assert text == '{"topics": {"t": {"id": "id", "partitions": {"0": 3, "9": 2, "10": 1}}}}'


@given(ranges(), st.integers(1, 2**41))
def test_allocation_never_exceeds_the_limit_nor_the_ranges(available: list[Range], limit: int) -> None:
    given_out = allocate(available, limit)
    by_key = {(item.topic, item.partition): item for item in available}
    assert sum(map(len, given_out)) == min(limit, sum(map(len, available)))
    for item in given_out:
        whole = by_key[item.topic, item.partition]
        assert item.start == whole.start
        assert whole.start < item.end <= whole.end


@given(ranges(), st.integers(1, 2**41))
def test_every_range_with_records_gets_one_as_long_as_the_limit_allows(
    available: list[Range], limit: int
) -> None:
    filled = [item for item in available if len(item)]
    assert len(allocate(available, limit)) == min(len(filled), limit)


@given(ranges(), st.none() | st.integers(0, 2**41))
def test_below_the_limit_everything_is_given_out(available: list[Range], spare: int | None) -> None:
    total = sum(map(len, available))
    limit = None if spare is None else total + spare
    assert allocate(available, limit) == [item for item in available if len(item)]


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(1, 5))
def test_even_below_one_record_a_range_each_range_has_its_turn(backlog: list[int], limit: int) -> None:
    """Records arrive in every partition, faster than the limit lets them be read."""
    served: set[int] = set()
    for _ in range(sum(backlog) * len(backlog) + len(backlog)):
        for item in allocate([Range("t", n, 0, size) for n, size in enumerate(backlog)], limit):
            backlog[item.partition] -= len(item)
            served.add(item.partition)
        backlog = [size + 1 for size in backlog]
    assert served == set(range(len(backlog)))


@given(ranges(largest=5 * MIN_PIECE), st.integers(1, 64))
def test_splits_cover_the_ranges_exactly(planned: list[Range], parallelism: int) -> None:
    splits = plan_splits(planned, parallelism)
    assert all(split.ranges for split in splits)
    pieces: dict[TopicPartition, list[Range]] = {}
    for split in splits:
        for piece in split.ranges:
            if len(piece):
                pieces.setdefault((piece.topic, piece.partition), []).append(piece)
    assert set(pieces) == {(item.topic, item.partition) for item in planned if len(item)}
    for item in planned:
        if not len(item):
            continue
        own = pieces[item.topic, item.partition]
        assert own == sorted(own, key=lambda piece: piece.start)
        assert (own[0].start, own[-1].end) == (item.start, item.end)
        assert all(before.end == after.start for before, after in pairwise(own))


@given(ranges(largest=5 * MIN_PIECE), st.integers(1, 64))
def test_a_split_reads_a_partition_once_and_is_the_same_when_planned_again(
    planned: list[Range], parallelism: int
) -> None:
    splits = plan_splits(planned, parallelism)
    assert splits == plan_splits(planned, parallelism)
    assert pickle.loads(pickle.dumps(splits)) == splits
    for split in splits:
        keys = [(piece.topic, piece.partition) for piece in split.ranges]
        assert len(keys) == len(set(keys))


def test_a_small_batch_is_one_task_and_a_large_one_a_task_a_partition_or_more() -> None:
    small = [Range("t", number, 0, SMALL_BATCH // 4) for number in range(4)]
    assert plan_splits(small, 8) == [KafkaSplit(tuple(small))]
    large = [Range("t", number, 0, MIN_PIECE) for number in range(4)]
    assert plan_splits(large, 8) == [KafkaSplit((item,)) for item in large]
    huge = [Range("t", 0, 0, 8 * MIN_PIECE)]
    assert [len(split.ranges[0]) for split in plan_splits(huge, 4)] == [2 * MIN_PIECE] * 4
    assert plan_splits([], 4) == plan_splits([Range("t", 0, 5, 5)], 4) == []


def test_many_small_partitions_share_tasks() -> None:
    many = [Range("t", number, 0, SMALL_BATCH // 5) for number in range(100)]
    assert len(plan_splits(many, 4)) == 20


@given(st.dictionaries(partitions, st.tuples(offsets, st.integers(0, 99), st.integers(0, 99)), max_size=8))
def test_what_lies_between_two_positions_is_read_or_named_as_lost(
    steps: dict[TopicPartition, tuple[int, int, int]],
) -> None:
    """Each partition: where it stood, how many records are gone, how many were read."""
    start = KafkaPosition({key: at for key, (at, _, _) in steps.items()})
    end = KafkaPosition(
        {key: at + gone + new for key, (at, gone, new) in steps.items()},
        first={key: at + gone for key, (at, gone, _) in steps.items() if gone},
    )
    read, lost = ranges_between(start, end), lost_between(start, end)
    assert [(r.topic, r.partition) for r in read] == sorted((r.topic, r.partition) for r in read)
    assert sum(map(len, read)) == sum(new for _, _, new in steps.values())
    assert sum(map(len, lost)) == sum(gone for _, gone, _ in steps.values())
    for item in lost:
        at, gone, _ = steps[item.topic, item.partition]
        assert (item.start, item.end) == (at, at + gone)
    for item in read:
        at, gone, new = steps[item.topic, item.partition]
        assert (item.start, item.end) == (at + gone, at + gone + new)


@given(positions())
def test_between_a_position_and_itself_there_is_nothing(position: KafkaPosition) -> None:
    assert ranges_between(position, position) == []
    assert lost_between(KafkaPosition(position.next), KafkaPosition(position.next)) == []


def test_a_new_partition_is_read_from_its_first_offset_and_nothing_of_it_is_lost() -> None:
    start = KafkaPosition({("t", 0): 5})
    end = KafkaPosition({("t", 0): 5, ("t", 1): 9}, first={("t", 1): 4})
    assert ranges_between(start, end) == [Range("t", 1, 4, 9)]
    assert lost_between(start, end) == []


def test_a_range_reads_as_people_write_it() -> None:
    assert str(Range("trades", 3, 10, 20)) == "trades-3 [10, 20)"
    assert len(Range("trades", 3, 10, 20)) == 10
