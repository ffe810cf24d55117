"""The one thread that samples: every two seconds, every source, into the history. With many sources less often."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from forebay import threads
from forebay.web.history import PARTITIONS, PARTITIONS_EVERY_MS, History, SourceSample
from forebay.web.snapshot import HomeSnapshots, SourceNow

EVERY_S = 2.0
COST = 50.0  # times as long as a sample took: two percent of a core at most
CLOSE_S = 5.0


class Sampler:
    """From its making until it is closed."""

    def __init__(self, snapshots: HomeSnapshots, history: History) -> None:
        self._snapshots = snapshots
        self._history = history
        self._before: dict[str, tuple[float, int, int, dict[str, int]]] = {}
        self._partitions_ms = 0
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-ui-sampler", self._run, self._closed)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            self.sample()
            self._closed.wait(max(EVERY_S, COST * (time.monotonic() - began)))

    def sample(self) -> None:
        """One look at all sources."""
        snapshot = self._snapshots.now()
        at = time.monotonic()
        samples = [self._of(each, snapshot.at_ms, at) for each in snapshot.sources.values()]
        if snapshot.at_ms - self._partitions_ms >= PARTITIONS_EVERY_MS:
            self._partitions_ms = snapshot.at_ms
            samples = [
                replace(each, partitions=furthest_behind(snapshot.sources[each.source])) for each in samples
            ]
        self._history.add(samples)
        for gone in self._before.keys() - snapshot.sources.keys():
            del self._before[gone]

    def _of(self, source: SourceNow, at_ms: int, at: float) -> SourceSample:
        totals = source.totals
        records, size = (totals.records, totals.bytes) if totals else (0, 0)
        rejected = dict(totals.rejected) if totals else {}
        before = self._before.get(source.name)
        self._before[source.name] = (at, records, size, rejected)
        batch_ms = self._snapshots.batch_ms(totals.view) if totals is not None else None
        if before is None or at <= before[0] or records < before[1]:
            return SourceSample(source.name, at_ms, None, None, source.lag, source.lag_s, batch_ms)
        past = at - before[0]
        errors = {
            kind: count - before[3].get(kind, 0)
            for kind, count in rejected.items()
            if count > before[3].get(kind, 0)
        }
        return SourceSample(
            source.name,
            at_ms,
            round((records - before[1]) / past, 3),
            round(max(0, size - before[2]) / past, 1),
            source.lag,
            source.lag_s,
            batch_ms if records > before[1] else None,
            errors,
        )


def furthest_behind(source: SourceNow, most: int = PARTITIONS) -> dict[str, int]:
    """The lag of so many partitions: a topic may have thousands, and what is kept is bounded."""
    health = source.health.partitions if source.health is not None and source.health.healthy else ()
    rows = sorted(health, key=lambda each: (-each.lag, each.topic, each.partition))[:most]
    return {f"{each.topic}-{each.partition}": each.lag for each in rows}
