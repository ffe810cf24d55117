"""Watermarks per partition: for random partitions, speeds, idleness and restarts, by the pieces that a source uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from forebay.kafka.silence import SilenceClock
from forebay.source.watermarks import Bounds, Marks, decide

DELAY_MS, IDLE_MS = 5_000, 3_000
BOUNDS = Bounds(DELAY_MS, IDLE_MS)
TOPIC = "t"


@dataclass
class Log:
    """A partition: event times in milliseconds, by offset."""

    times: list[int] = field(default_factory=list)

    def newest(self, before: int) -> int | None:
        return max(self.times[:before], default=None)

    def within_bound(self, offset: int) -> bool:
        newest = self.newest(offset)
        return newest is None or self.times[offset] >= newest - DELAY_MS


@dataclass
class Source:
    """A source as its parts see it: brokers, the process that plans, the driver's file, Spark's offset log."""

    logs: list[Log]
    now_s: float = 0.0
    clock: SilenceClock = field(default_factory=SilenceClock)
    memory_ms: int | None = None  # of the process that plans
    event_times: dict[tuple[str, int], int] = field(default_factory=dict)
    position: dict[tuple[str, int], int] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)  # of the newest batch in the offset log
    was_idle: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.position = {(TOPIC, number): 0 for number in range(len(self.logs))}

    def restart(self) -> None:
        self.clock, self.memory_ms = SilenceClock(), None

    def look(self) -> Marks:
        ends = {(TOPIC, number): len(log.times) for number, log in enumerate(self.logs)}
        self.clock.look(self.position, ends, self.now_s)
        before = [at for at in (self.marks.watermark_ms, self.memory_ms) if at is not None]
        found = decide(self.event_times, self.clock.silence(), BOUNDS, max(before, default=None))
        self.was_idle |= {each.partition for each in found.partitions if each.idle}
        assert found.watermark_ms is None or all(found.watermark_ms >= at for at in before)  # never back
        self.memory_ms = found.watermark_ms
        return Marks(found.watermark_ms, found.own())

    def plan(self, most: int, left_out: int | None) -> dict[tuple[str, int], int]:
        """The next batch, as it is in the offset log."""
        self.marks = Marks.at(self.look().named())
        return {
            place: at if place[1] == left_out else min(at + most, len(self.logs[place[1]].times))
            for place, at in self.position.items()
        }

    def read(self, end: dict[tuple[str, int], int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Rows that are late where a table can still take those of an idle partition, and rows that Spark calls late."""
        late, dropped = [], []
        for (topic, number), at in end.items():
            for offset in range(self.position[topic, number], at):
                time = self.logs[number].times[offset]
                mark = self.marks.of((topic, number))
                late += [(number, offset)] if mark is not None and time < mark else []
                watermark = self.marks.watermark_ms
                dropped += [(number, offset)] if watermark is not None and time < watermark else []
        return late, dropped

    def commit(self, end: dict[tuple[str, int], int]) -> None:
        for (topic, number), at in end.items():
            newest = self.logs[number].newest(at)
            if newest is not None:
                self.event_times[topic, number] = newest * 1000
        self.position = end


@dataclass(frozen=True)
class Round:
    """Some partitions are written to, time passes, somebody looks now and then, and perhaps there is a batch."""

    writes: dict[
        int, list[int]
    ]  # by partition: each event time relative to the newest before it, some beyond the bound
    waits_ms: list[int]
    most: int  # records of a partition in a batch; 0: no batch
    left_out: int | None = None  # of this partition nothing is read: the batch is full
    trouble: str = ""


rounds = st.lists(
    st.builds(
        Round,
        st.dictionaries(
            st.integers(0, 2), st.lists(st.integers(-9_000, 40_000), min_size=1, max_size=3), max_size=2
        ),
        st.lists(st.sampled_from([0, 200, 1_000, 4_000, 9_000]), max_size=2),
        st.sampled_from([0, 1, 3, 3]),
        st.sampled_from([None, None, 0, 1]),
        st.sampled_from(["", "", "", "killed", "killed late", "restarted", "away"]),
    ),
    min_size=3,
    max_size=12,
)


def run(rounds: list[Round], partitions: int) -> Source:
    source = Source([Log() for _ in range(partitions)])
    for each in rounds:
        for number, steps in each.writes.items():
            log = source.logs[number % partitions]
            for step in steps:
                log.times.append(max(0, (log.newest(len(log.times)) or 0) + step))
        if each.trouble == "restarted":
            source.restart()
        for wait_ms in each.waits_ms:
            if each.trouble == "away":
                source.clock.stand_still()
            source.now_s += wait_ms / 1000
            source.look()
        if each.most:
            batch(source, each)
    return source


def batch(source: Source, each: Round) -> None:
    end = source.plan(each.most, each.left_out)
    first = late, dropped = source.read(end)
    if each.trouble.startswith("killed"):
        if (
            each.trouble == "killed late"
        ):  # after the driver wrote its file, and before the batch was committed
            position = source.position
            source.commit(end)
            source.position = position
        source.restart()
        assert source.read(end) == first  # a batch that is repeated is judged alike
    for number, offset in late:
        assert not source.logs[number].within_bound(offset)
    for number, offset in dropped:
        assert number in source.was_idle or not source.logs[number].within_bound(offset)
    source.commit(end)


@given(rounds, st.integers(1, 3))
def test_no_row_within_the_bound_of_its_own_partition_is_late_and_the_watermark_never_goes_back(
    rounds: list[Round], partitions: int
) -> None:
    run(rounds, partitions)


@given(rounds, st.integers(1, 3))
def test_once_all_is_read_and_the_timeout_is_over_every_window_closes(
    rounds: list[Round], partitions: int
) -> None:
    source = run([*rounds, Round({}, [], 1_000)], partitions)
    newest = max((log.newest(len(log.times)) for log in source.logs if log.times), default=None)
    source.look()
    source.now_s += IDLE_MS / 1000 + 60
    marks = source.look()
    if newest is not None:
        # Event time has gone on with the clock, and no further: a record that kept pace with it is not late.
        assert marks.watermark_ms is not None
        assert newest - DELAY_MS + 60_000 - 1 <= marks.watermark_ms
        assert source.marks.watermark_ms is not None or marks.watermark_ms <= newest - DELAY_MS + 60_000
