"""Forebay for a long time: what each micro-batch of a reading took, and its workers' memory, in a process that
goes on and on."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.contract import Peer, Prepared, cpu_seconds
from benchmarks.peers.forebay_sql import NAME, ForebaySql
from benchmarks.peers.sampling import MemorySampler
from benchmarks.peers.session import Opening, Reading, serve

PEER = Peer(NAME, "benchmarks.peers.forebay_long", lambda _: Prepared(sys.executable))
LAST_EVENT_S = 5.0
SAMPLE_S = 0.25


class Long(ForebaySql):
    def __init__(self, opening: Opening) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        super().__init__(opening)
        self.batches: list[tuple[int, float, float]] = []
        self._cpu = 0.0
        self.records = 0
        self.arrived = threading.Condition()
        worker = self

        class Batches(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None: ...

            def onQueryIdle(self, event: Any) -> None: ...

            def onQueryTerminated(self, event: Any) -> None: ...

            def onQueryProgress(self, event: Any) -> None:
                worker.seen(_read(event.progress.sources[0]), event.progress.batchDuration)

        self.db.spark.streams.addListener(Batches())

    def seen(self, records: int, duration_ms: int) -> None:
        """Events come a little late, so the CPU time of a batch is that between two events."""
        if not records:
            return
        cpu = sum(cpu_seconds().values())
        with self.arrived:
            self.batches.append((records, duration_ms / 1000, cpu - self._cpu))
            self._cpu = cpu
            self.records += records
            self.arrived.notify_all()

    def begin(self) -> None:
        self.batches, self.records = [], 0
        self._cpu = sum(cpu_seconds().values())


def _read(source: Any) -> int:
    """The records between a batch's offsets: its rows may be sums of many."""
    start, end = (sum(_next(text).values()) for text in (source.startOffset, source.endOffset))
    return end - start


def _next(offsets: str | None) -> dict[str, int]:
    """None before the first batch."""
    topics = (json.loads(offsets or "null") or {"topics": {}})["topics"]
    return {f"{name}/{part}": n for name, t in topics.items() for part, n in t["partitions"].items()}


def answer(worker: Long, question: Mapping[str, Any]) -> dict[str, Any]:
    """One reading of the topic: micro-batches as (records, wall s, CPU s), memory as (records through, bytes)."""
    reading = Reading(**question)
    worker.begin()
    sampler = MemorySampler(SAMPLE_S, lambda: worker.records)
    sampler.start()
    start = time.monotonic()
    found = worker.read(reading)
    wall_s = time.monotonic() - start
    with worker.arrived:
        worker.arrived.wait_for(lambda: worker.records >= reading.records, LAST_EVENT_S)
    memory = [(look.records, sum(look.workers.values())) for look in sampler.stop() if look.workers]
    return {"answer": found, "wall_s": wall_s, "batches": worker.batches, "memory": memory}


if __name__ == "__main__":
    serve(Long, answer)
