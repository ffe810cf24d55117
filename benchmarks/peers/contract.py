"""What the runner and a peer tell each other. Imports nothing that a peer's own environment may lack."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True)
class Prepared:
    """A peer that is ready to run: its interpreter, and what it wants to find in `Task.own`."""

    python: str
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A system to measure. `prepare` installs what it needs, once; it raises if that fails."""

    name: str
    module: str
    prepare: Callable[[Path], Prepared]


@dataclass(frozen=True)
class Task:
    """One measurement, the same for every peer of a round."""

    bootstrap_servers: str
    topic: str
    warmup_topic: str
    batch_records: int  # the most records in a micro-batch
    work: str  # an empty folder for checkpoints and the like
    master: str = "local[2]"
    heap: str = "2g"
    sample_s: float | None = None  # how often to look at the memory of Python workers
    live_s: float | None = None  # read a topic that grows for so long, and tell how old records are when seen
    warm_file: str = ""  # of a topic that grows: made when the peer is warm, and what follows counts
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """Resident memory at one moment, in bytes."""

    at_s: float
    records: int  # in the batches done by then
    workers: Mapping[str, int]  # by process id
    planner: int
    driver: int


@dataclass(frozen=True)
class Outcome:
    """What a peer measured, from the query's start to its end."""

    version: str
    records: int
    checksum: str  # of every column of every record: equal for peers that read the same
    batches: int
    wall_s: float
    batch_s: float  # of that, inside micro-batches: without starting the query and writing its logs
    cpu: Mapping[str, float]  # CPU seconds of the peer's process tree, by program
    samples: tuple[Sample, ...] = ()
    ages_ms: tuple[float, ...] = ()  # of the records of a live topic, when the sink had them
    batch_ms: tuple[float, ...] = ()  # of its micro-batches, from one's end to the next one's
    memory: tuple[int, ...] = ()  # of the whole process tree, in bytes, now and then

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu.values())

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    @property
    def batch_rate(self) -> float:
        return self.records / self.batch_s

    @staticmethod
    def from_json(text: str) -> Outcome:
        raw = json.loads(text)
        samples = tuple(Sample(**sample) for sample in raw["samples"])
        return Outcome(
            **raw
            | {
                "samples": samples,
                "ages_ms": tuple(raw["ages_ms"]),
                "batch_ms": tuple(raw["batch_ms"]),
                "memory": tuple(raw["memory"]),
            }
        )


def serve(measure: Callable[[Task], Outcome]) -> None:
    """The main program of a peer. Whatever else it prints goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)  # a JVM inherits the file descriptor, not sys.stdout
    task = Task(**json.loads(sys.stdin.read()))
    line = json.dumps(asdict(measure(task))) + "\n"
    with os.fdopen(answer, "w") as out:
        out.write(line)


def cpu_seconds() -> dict[str, float]:
    """CPU time so far of this process and all that it started, by program ("java", "python").

    A process that has ended is counted where its parent counts it, so nothing is lost between two calls.
    """
    used: dict[str, float] = {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            program = "python" if process.name().startswith("python") else process.name()
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # What a JVM has started and seen end are Spark's Python processes.
        ended = "python" if program == "java" else program
        used[program] = used.get(program, 0.0) + times.user + times.system
        used[ended] = used.get(ended, 0.0) + times.children_user + times.children_system
    return used


class Clock:
    """Wall and CPU seconds of a block."""

    wall_s = 0.0
    cpu: Mapping[str, float] = {}


@contextmanager
def timed() -> Iterator[Clock]:
    """Measure a block: wall seconds, and CPU seconds of the whole process tree."""
    clock, before, start = Clock(), cpu_seconds(), time.monotonic()
    yield clock
    clock.wall_s = time.monotonic() - start
    clock.cpu = {name: spent - before.get(name, 0.0) for name, spent in cpu_seconds().items()}
