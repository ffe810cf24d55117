"""Positions in topics: how they are written down, divided between partitions and cut into tasks.

Pure functions over frozen values. In Spark's offset log a position reads

    {"topics": {"trades": {"id": "9sX…", "partitions": {"0": 42, "1": 7}, "first": {"1": 0}}}}

where `first` says where a partition really begins if that is not where the position before it ended:
it is new, or records before `first` are gone and the source is configured to go on without them.

Of a source that shares its group, `"elsewhere": {"1": [50, 80]}` are offsets that another process has read: they are
no loss, and not read here. `"assigned": 7` is the number of the assignment that the batch was planned with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from forebay.connectors.contract import Offsets, Split
from forebay.connectors.event_time import LatestTime
from forebay.kafka.partitions import TopicPartition

SMALL_BATCH = 50_000  # up to here one task beats several: a task costs about 100 ms, a record 1 to 10 µs
MIN_PIECE = 100_000  # a partition is cut further only into pieces at least this large

Span = tuple[int, int]
"""Offsets of a partition: the first, and the one after the last."""


@dataclass(frozen=True)
class KafkaPosition:
    """Next offset to read, by partition; with the ids of the topics these offsets belong to."""

    next: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    first: Mapping[TopicPartition, int] = field(default_factory=dict)
    elsewhere: Mapping[TopicPartition, Span] = field(default_factory=dict)
    assigned: int | None = None

    def to_json(self) -> Offsets:
        """Sorted, so that equal positions are equal texts: that is how Spark compares them."""
        topics: dict[str, dict[str, object]] = {}
        for topic, number in sorted(self.next):
            entry = topics.setdefault(topic, {"id": self.ids.get(topic, ""), "partitions": {}})
            entry["partitions"][str(number)] = self.next[topic, number]  # type: ignore[index]
            if (topic, number) in self.first:
                entry.setdefault("first", {})[str(number)] = self.first[topic, number]  # type: ignore[index]
            if (topic, number) in self.elsewhere:
                entry.setdefault("elsewhere", {})[str(number)] = list(self.elsewhere[topic, number])  # type: ignore[index]
        assigned = {} if self.assigned is None else {"assigned": self.assigned}
        return {**assigned, "topics": topics}

    @staticmethod
    def from_json(offsets: Offsets) -> KafkaPosition:
        following: dict[TopicPartition, int] = {}
        first: dict[TopicPartition, int] = {}
        elsewhere: dict[TopicPartition, Span] = {}
        ids: dict[str, str] = {}
        for topic, entry in offsets["topics"].items():
            ids[topic] = entry["id"]
            following.update(((topic, int(number)), offset) for number, offset in entry["partitions"].items())
            first.update(((topic, int(number)), offset) for number, offset in entry.get("first", {}).items())
            elsewhere.update(
                ((topic, int(number)), (span[0], span[1]))
                for number, span in entry.get("elsewhere", {}).items()
            )
        return KafkaPosition(following, ids, first, elsewhere, offsets.get("assigned"))


@dataclass(frozen=True)
class Range:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True)
class KafkaSplit(Split):
    """What one task reads: one large range, or several small ones."""

    ranges: tuple[Range, ...] = ()
    ids: tuple[tuple[str, str], ...] = ()  # of its topics
    latest: LatestTime | None = field(default=None, repr=False)  # event times beyond are refused

    def topic_ids(self) -> Mapping[str, str]:
        return dict(self.ids)

    def of(self, ids: Mapping[str, str], latest: LatestTime | None = None) -> KafkaSplit:
        """The same, with the ids of its topics and the latest event time that is taken."""
        topics = sorted({item.topic for item in self.ranges})
        known = tuple((topic, ids[topic]) for topic in topics if ids.get(topic))
        return KafkaSplit(self.ranges, known, latest)

    def spans(self) -> Sequence[tuple[str, int, int, int]]:
        return [(item.topic, item.partition, item.start, item.end) for item in self.ranges]


def ranges_between(
    start: KafkaPosition, end: KafkaPosition, elsewhere: Mapping[TopicPartition, Sequence[Span]] | None = None
) -> list[Range]:
    """What lies between two positions and can be read. `elsewhere` are offsets that other processes have read."""
    found = []
    for key in sorted(end.next):
        begin = max(start.next.get(key, 0), end.first.get(key, 0))
        if end.next[key] > begin:
            spans = list((elsewhere or {}).get(key, ()))
            if key in end.elsewhere:
                spans.append(end.elsewhere[key])
            found += without(Range(*key, begin, end.next[key]), spans)
    return found


def without(item: Range, spans: Iterable[Span]) -> list[Range]:
    """What is left of a range, in order."""
    left, begin = [], item.start
    for first, end in sorted(spans):
        if first > begin:
            left.append(Range(item.topic, item.partition, begin, min(first, item.end)))
        begin = max(begin, end)
        if begin >= item.end:
            break
    left.append(Range(item.topic, item.partition, begin, item.end))
    return [each for each in left if each.end > each.start]


def lost_between(start: KafkaPosition, end: KafkaPosition) -> list[Range]:
    """What lies between two positions but was gone before it could be read."""
    found = []
    for key in sorted(end.first):
        if key in start.next or end.assigned is not None:  # else it is new, and begins there
            _, done = end.elsewhere.get(key, (0, 0))
            begin = max(start.next.get(key, 0), done)
            if end.first[key] > begin:
                found.append(Range(*key, begin, end.first[key]))
    return found


def judge(rest: Range, low: int, high: int) -> tuple[Range | None, int | None]:
    """What is lost of a range whose start the broker [low, high) refused, and where to go on, if anywhere."""
    if rest.start < low:
        lost = Range(rest.topic, rest.partition, rest.start, min(low, rest.end))
        return lost, low if low < rest.end else None
    if high < rest.end and rest.start >= high:
        return rest, None
    # It has it now: the answer came from a replica that was behind.
    return None, rest.start


def allocate(available: Sequence[Range], limit: int | None) -> list[Range]:
    """Cut ranges down to `limit` records in all, each by its share, so that none is left behind.

    Every range with records gets at least one as long as the limit allows, or a small partition would
    starve beside a large one.
    """
    wanted = [item for item in available if len(item)]
    total = sum(len(item) for item in wanted)
    if limit is None or total <= limit:
        return wanted
    # The longest queue first: where the limit is below the number of ranges, each has its turn that way.
    order = sorted(range(len(wanted)), key=lambda index: (-len(wanted[index]), index))
    shares = [0] * len(wanted)
    for index in order[:limit]:
        shares[index] = 1
    spare, rest = limit - sum(shares), total - len(wanted)
    if spare:
        shares = [1 + (len(item) - 1) * spare // rest for item in wanted]
        left = limit - sum(shares)  # by rounding: less than one record a range
        for index in order:
            if left and shares[index] < len(wanted[index]):
                shares[index] += 1
                left -= 1
    return [
        Range(item.topic, item.partition, item.start, item.start + share)
        for item, share in zip(wanted, shares, strict=True)
        if share
    ]


def plan_splits(ranges: Sequence[Range], parallelism: int) -> list[KafkaSplit]:
    """A small batch is one task; a large one a task per partition, or more while cores are idle."""
    total = sum(len(item) for item in ranges)
    if not total:
        return []
    if total <= SMALL_BATCH:
        return [KafkaSplit(tuple(ranges))]
    pieces: list[Range] = []
    for item in ranges:
        wanted = max(1, round(parallelism * len(item) / total))
        pieces.extend(_cut(item, min(wanted, max(1, len(item) // MIN_PIECE))))
    return _pack(pieces)


def _cut(item: Range, parts: int) -> list[Range]:
    edges = [item.start + len(item) * part // parts for part in range(parts + 1)]
    return [Range(item.topic, item.partition, low, high) for low, high in pairwise(edges)]


def _pack(pieces: Sequence[Range]) -> list[KafkaSplit]:
    """Large pieces go alone; small ones share tasks, so that many partitions do not mean many tasks."""
    large = [piece for piece in pieces if len(piece) > SMALL_BATCH]
    splits = [KafkaSplit((piece,)) for piece in large]
    bundle: list[Range] = []
    for piece in pieces:
        if len(piece) > SMALL_BATCH:
            continue
        if sum(len(item) for item in bundle) + len(piece) > SMALL_BATCH and bundle:
            splits.append(KafkaSplit(tuple(bundle)))
            bundle = []
        bundle.append(piece)
    if bundle:
        splits.append(KafkaSplit(tuple(bundle)))
    return splits
