"""The watermark of a source, by the cases that people ask about."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from forebay.connectors.contract import Segment, SourceBatch
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.kafka.silence import SilenceClock
from forebay.source.event_times import NewestTimes, from_form
from forebay.source.watermarks import Bounds, Decision, Marks, decide, event_times, remember, without_marks

BOUNDS = Bounds(delay_ms=5_000, idle_ms=30_000)
A, B, C = ("t", 0), ("t", 1), ("t", 2)


def seconds(**newest: int) -> dict[tuple[str, int], int]:
    return {{"a": A, "b": B, "c": C}[name]: at * 1_000_000 for name, at in newest.items()}


def test_the_slowest_active_partition_holds_the_watermark_back_and_is_named() -> None:
    found = decide(seconds(a=100, b=40), {A: None, B: 29.0}, BOUNDS)
    assert found.watermark_ms == 35_000
    assert found.held_by is not None
    assert (found.held_by.topic, found.held_by.partition) == B
    assert found.own() == {}


def test_an_idle_partition_is_left_out_and_has_a_mark_of_its_own() -> None:
    found = decide(seconds(a=100, b=40), {A: None, B: 30.0}, BOUNDS)
    assert found.watermark_ms == 95_000
    assert found.own() == {B: 35_000}
    marks = Marks(found.watermark_ms, found.own())
    assert (marks.of(A), marks.of(B)) == (95_000, 35_000)
    # It comes back: the watermark stands still until it has caught up.
    back = decide(seconds(a=200, b=40), {A: None, B: None}, BOUNDS, found.watermark_ms)
    assert back.watermark_ms == 95_000
    assert back.held_by is not None
    assert back.held_by.partition == 1


def test_a_partition_that_never_had_a_record_is_not_waited_for_and_one_with_unread_records_is() -> None:
    assert decide(seconds(a=100), {A: None, B: 0.0}, BOUNDS).watermark_ms == 95_000
    held = decide(seconds(a=100), {A: None, B: None}, BOUNDS, 7)
    assert held.watermark_ms == 7
    assert held.held_by is not None
    assert held.held_by.partition == 1


def test_with_all_partitions_idle_event_time_goes_on_with_the_clock_from_the_greatest() -> None:
    def at(quiet_s: float) -> int | None:
        return decide(seconds(a=100, b=40), {A: quiet_s + 50, B: quiet_s, C: 0.0}, BOUNDS).watermark_ms

    assert [at(29.9), at(30), at(42.5)] == [35_000, 95_000, 107_500]
    assert decide({}, {A: 99.0}, BOUNDS).watermark_ms is None


def test_silence_counts_only_between_looks_that_found_the_end_at_the_same_offset() -> None:
    clock = SilenceClock()
    clock.look({A: 5, B: 5}, {A: 5, B: 9}, now=0.0)
    clock.look({A: 5, B: 5}, {A: 5, B: 9}, now=4.0)
    assert clock.silence() == {A: 4.0, B: None}
    clock.look({A: 5, B: 9}, {A: 5, B: 9}, now=5.0)  # B has been read
    clock.look({A: 5, B: 9}, {A: 5, B: 9}, now=7.0)
    assert clock.silence() == {A: 7.0, B: 2.0}
    clock.stand_still()  # brokers are away
    clock.look({A: 5, B: 9}, {A: 5, B: 9}, now=90.0)
    assert clock.silence() == {A: 7.0, B: 2.0}
    clock.look({A: 6, B: 9}, {A: 6, B: 9}, now=91.0)  # something came and was read in between
    assert clock.silence() == {A: 0.0, B: 3.0}


def test_marks_are_part_of_a_position_and_one_of_an_older_version_has_none() -> None:
    marks = Marks(7_000, {A: 3_000, B: None})
    position = {"source": "s", "topics": {}, **marks.named()}
    assert Marks.at(position) == marks
    assert without_marks(position) == {"source": "s", "topics": {}}
    assert Marks.at({"source": "s", "topics": {}}) == Marks()


def test_greatest_event_times_are_remembered_and_a_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "read" / "event-times.json"
    assert event_times(path) == {}
    remember(path, {A: 5, B: 9})
    remember(path, {A: 7, B: 2})
    remember(path, {A: 7, B: 2})
    assert event_times(path) == {A: 7, B: 9}
    path.write_bytes(b"")  # a power failure
    assert event_times(path) == {}
    decision = decide({A: 7_000_000}, {A: None}, BOUNDS)
    decision.write(tmp_path / "watermark.json")
    assert Decision.read(tmp_path / "watermark.json") == decision


@pytest.mark.parametrize("segments", [[Segment(A, 0, 2), Segment(B, 2, 3)], []])
def test_a_task_finds_the_greatest_event_time_of_each_partition(segments: list[Segment]) -> None:
    rows = pa.record_batch({"ts": pa.array([5, 9, None], pa.timestamp("us"))})
    ranges = (Range(*A, 0, 2), Range(*B, 0, 1)) if segments else (Range(*A, 0, 3),)
    times = NewestTimes(KafkaSplit(ranges), "ts")
    times.see(SourceBatch(rows, segments=segments))
    times.see(SourceBatch(rows.slice(0, 1), segments=[Segment(A, 0, 1)]))
    assert from_form(times.to_form()) == {A: 9}
