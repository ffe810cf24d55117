"""Peers that keep views of a topic that grows: started once, then looked at while the topic grows or does not.

Line by line as in `session.py`. A question says what to "do": "start" so many views over a topic, "watch" all processes for
some seconds, or "select" from the views so many times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks.peers.contract import timed
from benchmarks.peers.session import Reading

PARTITIONS = 4
PATIENCE_S = 40.0  # with the SELECTs of a peer that cannot keep up
VIEWS = 10  # the most of one source: each takes what leaves its own number


def reading(topic: str) -> Reading:
    return Reading(topic, 0, PARTITIONS, "json", "rows", "live", 0)


def condition(view: int) -> str:
    return f"k % {VIEWS} = {view % VIEWS}"


class LiveWorker(Protocol):
    """The peer's part."""

    version: str

    def start(self, topic: str, views: int) -> Sequence[Path]:
        """Returns the folder of each view's table."""
        ...

    def select(self, view: int) -> None:
        """A count and the highest k, from one view's table."""
        ...

    def close(self) -> None: ...


def answer(worker: LiveWorker, question: Mapping[str, Any]) -> dict[str, Any]:
    if question["do"] == "start":
        folders = worker.start(question["topic"], question["views"])
        return {"folders": [str(folder) for folder in folders]}
    if question["do"] == "watch":
        return watch(question["seconds"])
    return {"took_s": selects(worker, question["times"], question["views"])}


def selects(worker: LiveWorker, times: int, views: int) -> float:
    """Seconds for so many SELECTs; when the patience is over, by those that were done until then."""
    began, done = time.monotonic(), 0
    while done < times and time.monotonic() - began < PATIENCE_S:
        worker.select(done % views)
        done += 1
    return (time.monotonic() - began) * times / done


def watch(seconds: float) -> dict[str, Any]:
    """CPU seconds of the peer's process tree for so long, and its memory after that."""
    psutil.cpu_percent()  # the next call tells of the time since this one
    began_ms = time.time() * 1000
    with timed() as clock:
        time.sleep(seconds)
    ended_ms = time.time() * 1000
    busy = psutil.cpu_percent()
    sizes = memory()
    return {
        "began_ms": began_ms,
        "ended_ms": ended_ms,
        "cpu_s": sum(clock.cpu.values()),
        "wall_s": clock.wall_s,
        "busy": busy,
        "memory": sum(sizes),
        "processes": len(sizes),
    }


def memory() -> list[int]:
    """Bytes of each process of this tree. What several share is shared out among them (PSS), where the system tells."""
    sizes = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            found = process.memory_full_info()
        except psutil.NoSuchProcess:
            continue
        sizes.append(getattr(found, "pss", found.rss))
    return sizes
