"""How long a read that is behind needs to catch up: from what it reads a second, less what arrives a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

WINDOW_S = 30.0  # of the batches that the rates are taken from: long enough for some, short enough for now
LONGEST = 16  # batches


@dataclass(frozen=True)
class CatchUp:
    """`behind` records at a moment. Rates are a second; None before there are two batches to compare."""

    behind: int
    reads: float | None = None
    arrives: float | None = None

    @property
    def seconds(self) -> float | None:
        """Until it has caught up, at this rate; None if nobody knows; infinite if it never does."""
        if self.behind == 0:
            return 0.0
        if self.reads is None or self.arrives is None:
            return None
        gained = self.reads - self.arrives
        return self.behind / gained if gained > 0 else float("inf")

    def __str__(self) -> str:
        seconds = self.seconds
        if self.behind == 0:
            return "current"
        behind = f"behind by {_count(self.behind)} records"
        if seconds is None:
            return behind
        if seconds == float("inf"):
            rates = f"{_count(self.arrives or 0)} a second arrive, {_count(self.reads or 0)} are read"
            return f"{behind}, not catching up: {rates}"
        return f"{behind}, {_duration(seconds)} at this rate"


class ReadPace:
    """Of one read: what it did in its last batches."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(
            maxlen=LONGEST
        )  # when, read by then, behind then
        self._read = 0

    def planned(self, now: float, records: int, behind: int) -> CatchUp:
        """A batch of so many records begins, of `behind` that there are. It is current if the batch takes all of them."""
        self._samples.append((now, self._read, behind))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        self._read += records
        return self._estimate(0 if behind <= records else behind)

    def idle(self, behind: int = 0) -> CatchUp:
        """There is nothing to read, or nothing may be: what was measured before says nothing about what comes next."""
        self._samples.clear()
        return CatchUp(behind)

    def _estimate(self, behind: int) -> CatchUp:
        (began, read_before, behind_before), (now, read, behind_now) = self._samples[0], self._samples[-1]
        if now <= began:
            return CatchUp(behind)
        reads = (read - read_before) / (now - began)
        arrives = max(0.0, reads + (behind_now - behind_before) / (now - began))
        return CatchUp(behind, reads, arrives)


def _count(number: float) -> str:
    for size, sign in ((1e9, " G"), (1e6, " M")):
        if number >= size:
            return f"{number / size:.1f}{sign}"
    return f"{number:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return " ".join(_parts(round(seconds / 60)))


def _parts(minutes: int) -> Iterator[str]:
    for size, sign in ((24 * 60, "d"), (60, "h"), (1, "min")):
        if number := minutes // size:
            yield f"{number} {sign}"
        minutes %= size
