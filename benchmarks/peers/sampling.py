"""The memory of PySpark's Python processes, looked at from the driver while a query runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from benchmarks.peers.contract import Sample

DAEMONS = {"pyspark.daemon", "forebay.source.worker_daemon"}
READER = "pyspark.worker"  # the argument of the daemon whose children run tasks; others analyse plans
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"


class MemorySampler(threading.Thread):
    """Takes a sample every `period_s` until stopped. `records` says how far the query is."""

    def __init__(self, period_s: float, records: Callable[[], int]) -> None:
        super().__init__(name="memory-sampler", daemon=True)
        self._period_s = period_s
        self._records = records
        self._stopped = threading.Event()
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def run(self) -> None:
        while not self._stopped.wait(self._period_s):
            self.samples.append(self._look())

    def stop(self) -> tuple[Sample, ...]:
        self._stopped.set()
        self.join()
        return tuple(self.samples)

    def _look(self) -> Sample:
        here = psutil.Process()
        workers: dict[str, int] = {}
        planner = 0
        for process in here.children(recursive=True):
            try:
                command, parent = process.cmdline(), process.parent()
                rss = process.memory_info().rss
                # The daemon forks its workers, which keep its command line; it does no work itself.
                forked = parent is not None and not DAEMONS.isdisjoint(parent.cmdline())
            except psutil.NoSuchProcess:
                continue
            if PLANNER in command:
                planner += rss
            elif READER in command and not DAEMONS.isdisjoint(command) and forked:
                workers[str(process.pid)] = rss
        at = time.monotonic() - self._began
        return Sample(at, self._records(), workers, planner, here.memory_info().rss)
