"""A peer that stays: started and warmed up once, then asked one case after the other.

Line by line over standard input and output: an `Opening`, answered by a version; then each `Job`, answered
by a `Timing` or an error. Imports nothing that a peer's own environment may lack.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from benchmarks.peers.contract import timed
from benchmarks.peers.environment import last_words
from benchmarks.shapes import COLUMNS, PRICE_ABOVE, Type, avro_schema, names

Answer = dict[str, list[int]]
LEFT = 0.1  # less than this share of a figure, and a difference of two measurements is mostly noise


@dataclass(frozen=True)
class Opening:
    """What a peer gets once."""

    bootstrap_servers: str
    work: str  # an empty folder
    master: str = "local[2]"
    heap: str = "2g"
    batch_records: int = (
        4_000_000  # the most records in a micro-batch, for peers that have such a thing: our default
    )
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """One run over one topic."""

    topic: str
    records: int
    partitions: int
    format: str
    query: str
    size: str
    counted: int  # what the counts of the answer add up to: when a peer that knows no end is done
    on_error: str = ""  # the clause, for a peer that has one
    options: Mapping[str, str] = field(default_factory=dict)  # the format's own, as Forebay calls them

    @property
    def columns(self) -> dict[str, Type]:
        return COLUMNS[self.size]

    @property
    def schema(self) -> str:
        return avro_schema(self.size)

    @property
    def quantity(self) -> str:
        return names(self.size)[0]

    @property
    def where(self) -> str:
        """The filter's condition in SQL, "" for the other queries."""
        return f"{names(self.size)[1]} > {PRICE_ABOVE}" if self.query == "filter" else ""

    @property
    def aggregates(self) -> str:
        return f"count(*) AS n, sum({self.summed}) AS total"

    @property
    def summed(self) -> str:
        """What the sum is of, in SQL: raw payloads have only their length."""
        return "octet_length(value)" if self.format == "raw" else self.quantity

    @property
    def time(self) -> str:
        """The type of the time's column, where it is a plain number."""
        return "BIGINT" if self.format in ("csv", "protobuf") else "TIMESTAMP"


@dataclass(frozen=True)
class Job:
    """A case: the topic, an almost empty one of the same shape, and one to warm up on if it is the first time."""

    reading: Reading
    empty: Reading
    warmup: Reading | None

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Job:
        return Job(**{key: Reading(**value) if value else None for key, value in raw.items()})


@dataclass(frozen=True)
class Timing:
    """What a peer found and what it took; `start` is what the almost empty topic took: starting the job."""

    answer: Answer
    records: int
    wall_s: float
    cpu_s: float
    start_wall_s: float
    start_cpu_s: float

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    @property
    def net_rate(self) -> float | None:
        """Records per second without starting the job; None if too little is left to divide by."""
        net = self.wall_s - self.start_wall_s
        return self.records / net if net > LEFT * self.wall_s else None

    @property
    def cpu_per_million(self) -> float:
        return self.cpu_s / self.records * 1e6

    @property
    def net_cpu_per_million(self) -> float | None:
        net = self.cpu_s - self.start_cpu_s
        return net / self.records * 1e6 if net > LEFT * self.cpu_s else None


class Worker(Protocol):
    """The peer's part: one reading, from the first statement to the answer in hand."""

    version: str

    def read(self, reading: Reading) -> Answer: ...

    def close(self) -> None: ...


def measure(worker: Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    job = Job.from_json(question)
    if job.warmup:
        worker.read(job.warmup)
    with timed() as start:
        worker.read(job.empty)
    with timed() as clock:
        answer = worker.read(job.reading)
    cpu, start_cpu = sum(clock.cpu.values()), sum(start.cpu.values())
    return asdict(Timing(answer, job.reading.records, clock.wall_s, cpu, start.wall_s, start_cpu))


def serve(
    open_worker: Callable[[Opening], Any],
    answer: Callable[[Any, Mapping[str, Any]], dict[str, Any]] = measure,
) -> None:
    """The main program of such a peer. Whatever else it prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a JVM inherits the file descriptor, not sys.stdout
    with _reporting(out):
        worker = open_worker(Opening(**json.loads(sys.stdin.readline())))
        print(json.dumps({"version": worker.version}), file=out)
    try:
        for line in sys.stdin:
            with _reporting(out):
                print(json.dumps(answer(worker, json.loads(line))), file=out)
    finally:
        worker.close()


@contextmanager
def _reporting(out: Any) -> Iterator[None]:
    """An error is an answer too: the peer stays for the next case."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}"
        print(json.dumps({"error": last_words(words)}), file=out)


def window_key(minute_ms: int, symbol: str) -> str:
    return f"{minute_ms}/{symbol}"
