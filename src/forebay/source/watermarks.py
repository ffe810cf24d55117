"""A source's watermark: how far event time has come in all of its partitions.

A partition's own mark is the greatest event time that was read of it, less what a record may be late. The source's watermark
is the lowest mark of its active partitions, and never goes back. A partition is active

- while it has records that are not read yet; if no event time of it is known, the watermark stands still for it;
- until it has been silent for the idle timeout: read to the end, and the broker has confirmed since then that nothing came.

A partition that is read to the end and had no event time is never waited for. Where all partitions are idle, event time goes
on with the clock, from the greatest one: windows close, and a record whose time kept pace with the clock is not late.

A row is late where its window ended before the watermark *and* before the mark of its own partition. So a partition that
comes back from idleness has no row late that is within the bound of its own rows (`Marks.of`).

Everything here is a function of what was read and how long partitions have been silent: a batch that is repeated has the
marks that it was planned with, in Spark's offset log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forebay.connectors.contract import Offsets
from forebay.files import write_whole

Place = tuple[str, int]
"""Topic and partition."""

Silence = Mapping[Place, float | None]
"""For how many seconds each partition has been read to its end; None while it has unread records."""

WATERMARK, OWN = "watermark", "own"  # keys of a position in Spark's offset log
CONTROL = "control"  # the key that tells an offset of the control stream from a source's


@dataclass(frozen=True)
class Bounds:
    """How late a record of a partition may be, and after which silence a partition is idle."""

    delay_ms: int
    idle_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Bounds:
        return Bounds(**json.loads(text))


@dataclass(frozen=True)
class PartitionMark:
    """Of one partition: its own mark in milliseconds, None if it had no event time yet, and whether it is idle."""

    topic: str
    partition: int
    mark_ms: int | None
    idle: bool
    unread: bool


@dataclass(frozen=True)
class Decision:
    """The watermark of a source in milliseconds, None before there is one, and what it was made of."""

    watermark_ms: int | None = None
    partitions: tuple[PartitionMark, ...] = ()
    position: Offsets = field(default_factory=dict)  # what was read by then

    @property
    def held_by(self) -> PartitionMark | None:
        """The partition that the watermark waits for; None where all are idle."""
        active = [
            each for each in self.partitions if not each.idle and (each.unread or each.mark_ms is not None)
        ]
        return min(active, key=lambda each: (each.mark_ms is not None, each.mark_ms or 0), default=None)

    def own(self) -> dict[Place, int | None]:
        """The marks of those partitions that are behind the watermark."""
        if self.watermark_ms is None:
            return {}
        return {
            (each.topic, each.partition): each.mark_ms
            for each in self.partitions
            if each.mark_ms is None or each.mark_ms < self.watermark_ms
        }

    def write(self, path: Path) -> None:
        """For those who look. A folder that is gone is of a view that was dropped."""
        with suppress(FileNotFoundError):
            write_whole(path, json.dumps(asdict(self)).encode(), durable=False)

    @staticmethod
    def read(path: Path) -> Decision | None:
        form = _read(path)
        if form is None:
            return None
        partitions = tuple(PartitionMark(**each) for each in form["partitions"])
        return Decision(form["watermark_ms"], partitions, form["position"])


def decide(
    newest_us: Mapping[Place, int], silence: Silence, bounds: Bounds, before_ms: int | None = None
) -> Decision:
    """The watermark now, given the greatest event time that was read of each partition; never below `before_ms`."""
    silence = silence or dict.fromkeys(newest_us)  # a source that does not know is always read
    marks = []
    for place, quiet_s in sorted(silence.items()):
        newest = newest_us.get(place)
        mark_ms = None if newest is None else newest // 1000 - bounds.delay_ms
        idle = quiet_s is not None and (newest is None or quiet_s * 1000 >= bounds.idle_ms)
        marks.append(PartitionMark(*place, mark_ms, idle, quiet_s is None))
    reached = _lowest(marks, silence, bounds)
    watermark = max((at for at in (before_ms, reached) if at is not None), default=None)
    return Decision(watermark, tuple(marks))


def _lowest(marks: list[PartitionMark], silence: Silence, bounds: Bounds) -> int | None:
    active = [each for each in marks if not each.idle]
    if active:
        known = [each.mark_ms for each in active if each.mark_ms is not None]
        return min(known) if len(known) == len(active) else None
    known = [each.mark_ms for each in marks if each.mark_ms is not None]
    if not known:
        return None
    quiet_s = min(silence[each.topic, each.partition] or 0.0 for each in marks if each.mark_ms is not None)
    return max(known) + max(0, int(quiet_s * 1000) - bounds.idle_ms)


@dataclass(frozen=True)
class Marks:
    """By what the rows of a batch are judged: the watermark, and the marks of partitions that are behind it."""

    watermark_ms: int | None = None
    own: Mapping[Place, int | None] = field(default_factory=dict)

    def of(self, place: Place) -> int | None:
        """Windows that ended by then are closed for rows of this partition; None: no window is."""
        return self.own.get(place, self.watermark_ms)

    def named(self) -> dict[str, Any]:
        """As keys of a position."""
        if self.watermark_ms is None:
            return {}
        own: dict[str, dict[str, int | None]] = {}
        for (topic, number), mark in sorted(self.own.items()):
            own.setdefault(topic, {})[str(number)] = mark
        return {WATERMARK: self.watermark_ms} | ({OWN: own} if own else {})

    @staticmethod
    def at(position: Offsets) -> Marks:
        """Those that a position was planned with; none where it has none, as before there were any."""
        own = {
            (topic, int(number)): mark
            for topic, found in position.get(OWN, {}).items()
            for number, mark in found.items()
        }
        return Marks(position.get(WATERMARK), own)


def without_marks(position: Offsets) -> Offsets:
    """Where something was read to, and nothing else."""
    return {key: value for key, value in position.items() if key not in (WATERMARK, OWN)}


# -- the greatest event times: the driver keeps them, the process that plans reads them ------------------


def remember(path: Path, found: Mapping[Place, int]) -> None:
    """Before a batch is committed: what its tasks have found. A batch that is repeated changes nothing."""
    known = event_times(path)
    merged = {**known, **{place: max(at, known.get(place, at)) for place, at in found.items()}}
    if merged != known:
        form = [[*place, at] for place, at in sorted(merged.items())]
        path.parent.mkdir(parents=True, exist_ok=True)
        # A power failure may take it away: then the watermark stands where the offset log has it until there is news.
        write_whole(path, json.dumps(form).encode(), durable=False)


def event_times(path: Path) -> dict[Place, int]:
    return {(topic, number): at for topic, number, at in _read(path) or ()}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
