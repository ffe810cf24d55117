"""Keyed watermarks against a plain model: random keys, speeds, silences and repeats."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from forebay.source.key_marks import KeyMarks, KeyMarksFile, KeyTimes

DELAY_MS, IDLE_MS = 5_000, 30_000
SECOND_US = 1_000_000


@dataclass
class Model:
    """What the promise says, key by key."""

    newest: dict[str | None, int] = field(default_factory=dict)
    seen: dict[str | None, int] = field(default_factory=dict)
    floor: int | None = None
    clock: int = 0

    def closed(self, key: str | None) -> int | None:
        return self.newest[key] - DELAY_MS * 1000 if key in self.newest else self.floor

    def read(self, rows: list[tuple[str | None, int | None]], passed_ms: int, watermark: int | None) -> None:
        self.clock += passed_ms
        for key, at in rows:
            if at is not None:
                self.newest[key] = max(at, self.newest.get(key, at))
                self.seen[key] = self.clock
        idle = [key for key, at in self.seen.items() if at <= self.clock - IDLE_MS]
        if idle and watermark is not None:
            for key in idle:
                del self.newest[key], self.seen[key]
            self.floor = watermark if self.floor is None else max(self.floor, watermark)


keys = st.one_of(st.none(), st.sampled_from("abcdefg"))
times = st.one_of(st.none(), st.integers(0, 3_600).map(lambda second: second * SECOND_US))
batches = st.tuples(
    st.lists(st.tuples(keys, times), max_size=12),
    st.sampled_from([0, 1_000, 20_000, 40_000]),  # how long ago the batch before it was
    st.one_of(
        st.none(), st.integers(0, 3_600).map(lambda second: second * SECOND_US)
    ),  # the source's watermark
    st.integers(0, 2),  # how often the batch is repeated
    st.integers(1, 3),  # tasks
)


def columns(rows: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([k for k, _ in rows], pa.string()), pa.array([t for _, t in rows], pa.timestamp("us"))],
        names=["k", "ts"],
    )


@given(st.lists(batches, max_size=8))
def test_marks_are_those_of_a_plain_model_over_repeats_and_restarts(
    given_batches: list[tuple[list[tuple[str | None, int | None]], int, int | None, int, int]],
) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        for number, (rows, passed_ms, watermark, repeats, tasks) in enumerate(given_batches):
            for _ in range(repeats + 1):  # the process was killed after it had written the file
                file = KeyMarksFile(path, lambda one, other: one == other)
                before = file.at({"batch": number})
                judged = KeyMarks.from_bytes(before.to_bytes())
                wanted = [*"abcdefgh", None]
                found = judged.closed_us(pa.array(wanted, pa.string()), DELAY_MS).to_pylist()
                assert found == [model.closed(key) for key in wanted]
                sent = []
                for task in range(tasks):
                    times = KeyTimes("k", "ts")
                    for row in rows[task::tasks]:
                        times.see(columns([row]))
                    data = times.to_bytes()
                    sent += [] if data is None else [pa.ipc.open_stream(data).read_all()]
                after = before.after(sent, passed_ms, IDLE_MS, watermark)
                file.write({"batch": number}, before, {"batch": number + 1}, after)
            model.read(rows, passed_ms, watermark)
            assert len(after) == len(model.newest)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.integers(0, 4)), max_size=60))
def test_no_row_within_the_bound_of_its_own_key_is_late_however_far_others_are(
    steps: list[tuple[str, int, int]],
) -> None:
    """Each key has a clock of its own, which may be hours away from the others', and rows up to the delay behind it."""
    clocks = dict(zip("abc", (0, 3_600, 1_000_000), strict=True))
    marks = KeyMarks()
    for key, forward, behind in steps:
        clocks[key] += forward
        at = (clocks[key] - behind) * SECOND_US
        [closed] = marks.closed_us(pa.array([key]), DELAY_MS).to_pylist()
        assert closed is None or closed < at, "its window, which ends after it, is open"
        times = KeyTimes("k", "ts")
        times.see(columns([(key, at)]))
        marks = marks.after([pa.ipc.open_stream(times.to_bytes()).read_all()], 0, IDLE_MS, 10**15)
