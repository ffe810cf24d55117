"""Nothing only grows: ten views for hours, with bad records, while workers are killed.

`forebay run` in a process of its own reads a topic that grows, and its processes, files and batches are looked at again and
again. In the end every record must be in its views once, or be a letter. `make soak` runs it for two hours.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from benchmarks import machine
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers.environment import PeerError
from benchmarks.peers.sampling import DAEMONS, PLANNER, READER
from benchmarks.report import Grid, Section, Spread
from benchmarks.topics import Trickle
from forebay.devstack import DevStack

TITLE = "Two hours, ten views: nothing only grows"
PARTITIONS = 4
SYMBOLS = (b"AAPL", b"AMZN", b"GOOG", b"META", b"MSFT", b"NVDA", b"TSLA", b"V")
POISON_EVERY = 100
SELECTING = 7  # views of one digit each: k % 10 = 0 … 6; bad records would have the digit 9
KEEP_MS = (
    900_000  # of the topic, or two hours of it would fill the disk; a view that falls behind by so much fails
)
PATIENCE_S = 180.0
TENTHS = 10
# The last tenth by the second, the first being warm-up: what counts as flat.
FLAT = {"memory": 1.15, "descriptors": 1.10, "threads": 1.10, "files": 1.25, "batch": 1.25}
_MIB = 2**20

PIPELINE = """
CREATE SOURCE s (k BIGINT NOT NULL, symbol STRING, quantity BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
FROM KAFKA ('bootstrap.servers' = '{servers}', topic = 'soak', 'group.id' = 'soak', 'startup.mode' = 'earliest')
FORMAT JSON ON ERROR = dead_letter WITH (dead_letter_topic = 'soak-letters', max_errors_per_second = '100000');
{selecting}
CREATE MATERIALIZED VIEW by_minute AS SELECT window_start, symbol, count(*) AS n, sum(quantity) AS total
FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, symbol EMIT CHANGES;
CREATE MATERIALIZED VIEW by_symbol AS SELECT symbol, count(*) AS n FROM s GROUP BY symbol;
CREATE MATERIALIZED VIEW symbols AS SELECT DISTINCT symbol FROM s;
"""  # the last has a query of its own, and Spark keeps its state


@dataclass(frozen=True)
class Look:
    """All processes and files at one time."""

    at_s: float
    memory: Mapping[str, float]  # MiB by what a process is for
    descriptors: int
    threads: int
    files: Mapping[str, int]  # in the home, by what they are for
    batch_ms: float | None  # mean since the look before, of the read for all
    lag: float


@dataclass
class Soaked:
    """What was seen, and whether the account adds up."""

    looks: list[Look] = field(default_factory=list)
    made: int = 0
    killed: int = 0
    wrong: list[str] = field(default_factory=list)


def record(number: int, stamp_ms: int) -> bytes:
    if number % POISON_EVERY == POISON_EVERY - 1:
        return b'{"k":%d,"symbol":' % number
    symbol = SYMBOLS[number % len(SYMBOLS)]
    return b'{"k":%d,"symbol":"%s","quantity":%d,"ts":%d}' % (number, symbol, number % 500, stamp_ms)


class SoakedPipeline:
    """`forebay run`, seen from outside."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.home = folder / "home"
        self._log = folder / "log"
        views = [
            f"CREATE MATERIALIZED VIEW v{n} AS SELECT k, quantity FROM s WHERE k % 10 = {n};"
            for n in range(SELECTING)
        ]
        script = folder / "soak.sql"
        script.write_text(PIPELINE.format(servers=servers, selecting="\n".join(views)))
        with self._log.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "forebay", "run", str(script), "--home", str(self.home), "--metrics-port", "0"],
                stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._batches = (0.0, 0.0)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Of each metric the samples by view; nothing before they are served. PeerError if it has ended."""
        if self._process.poll() is not None:
            raise PeerError(f"the pipeline has ended: {self._log.read_text()[-2000:]}")
        address = re.search(r"metrics at (\S+)", self._log.read_text())
        if address is None:
            return {}
        try:
            with urllib.request.urlopen(address[1], timeout=30) as answer:
                text = answer.read().decode()
        except (ConnectionError, urllib.error.URLError):
            return {}
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[sample.labels.get("view", "")] = sample.value
        return found

    def look(self, at_s: float) -> Look:
        memory: Counter[str] = Counter()
        descriptors = threads = 0
        for process, role in self._processes():
            try:
                found = process.memory_full_info()
                memory[role] += getattr(found, "pss", found.rss)
                descriptors += process.num_fds()
                threads += process.num_threads()
            except psutil.Error:
                continue
        seen = self.metrics()
        done = (
            seen.get("forebay_query_batch_seconds_sum", {}).get("v0", 0.0),
            seen.get("forebay_query_batch_seconds_count", {}).get("v0", 0.0),
        )
        took, batches = done[0] - self._batches[0], done[1] - self._batches[1]
        self._batches = done
        sizes = {role: size / _MIB for role, size in memory.items()}
        lag = max(seen.get("forebay_query_lag_records", {}).values(), default=0.0)
        batch_ms = 1000 * took / batches if batches > 0 else None
        return Look(at_s, sizes, descriptors, threads, files(self.home), batch_ms, lag)

    def kill_worker(self) -> bool:
        """One that reads, at random; whether there was any."""
        workers = [process for process, role in self._processes() if role == "workers"]
        if not workers:
            return False
        random.choice(workers).kill()
        return True

    def await_read(self, records: int) -> None:
        """Until every view has read so many. PeerError."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            read = self.metrics().get("forebay_query_records_total", {})
            if len(read) == SELECTING + 3 and min(read.values()) >= records:
                return
            if time.monotonic() > deadline:
                raise PeerError(f"{records:,} records were made, and views have read {read}")
            time.sleep(0.5)

    def stop(self) -> None:
        """In order. PeerError."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(PATIENCE_S):
            raise PeerError(f"it did not end well: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _processes(self) -> Iterator[tuple[psutil.Process, str]]:
        """Each with what it is for."""
        try:
            tree = psutil.Process(self._process.pid)
            children = tree.children(recursive=True)
        except psutil.NoSuchProcess:
            return
        yield tree, "driver"
        for process in children:
            try:
                command, parent = process.cmdline(), process.parent()
                forked = parent is not None and not DAEMONS.isdisjoint(parent.cmdline())
            except psutil.Error:
                continue
            if command and Path(command[0]).name == "java":
                yield process, "Spark's JVM"
            elif PLANNER in command:
                yield process, "planner"
            elif READER in command and forked and not DAEMONS.isdisjoint(command):
                yield process, "workers"
            else:
                yield process, "others"


def files(home: Path) -> dict[str, int]:
    """How many, by what they are for."""
    found: Counter[str] = Counter()
    for path in home.rglob("*"):
        parts = path.parts
        if "_delta_log" in parts:
            found["Delta logs"] += 1
        elif path.suffix == ".parquet":
            found["data files"] += 1
        elif "checkpoint" in parts or "read" in parts:
            found["checkpoints"] += 1
        else:
            found["others"] += 1
    return dict(found)


def soak(console: Console, seconds: float, rate: int, kill_every_s: float, look_every_s: float) -> Soaked:
    """PeerError if the pipeline ends by itself or does not catch up."""
    found = Soaked()
    folder = Path(tempfile.mkdtemp(prefix="forebay-soak-"))
    with DevStack() as stack:
        stack.create_topic("soak", PARTITIONS, retention_ms=KEEP_MS, segment_bytes=64 << 20)
        pipeline = SoakedPipeline(folder, stack.bootstrap_servers)
        try:
            pipeline.await_read(0)
            trickle = Trickle(stack.bootstrap_servers, "soak", PARTITIONS, rate, record)
            trickle.start()
            try:
                _watch(console, pipeline, found, trickle, seconds, kill_every_s, look_every_s)
            finally:
                trickle.stop()
            found.made = trickle.made
            pipeline.await_read(found.made)
            found.looks.append(pipeline.look(seconds))
            pipeline.stop()
            found.wrong = wrong(pipeline.home, found.made)
        finally:
            pipeline.kill()
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _watch(
    console: Console, pipeline: SoakedPipeline, found: Soaked, trickle: Trickle,
    seconds: float, kill_every_s: float, look_every_s: float,
) -> None:  # fmt: skip
    began, kill_at, look_at = time.monotonic(), kill_every_s, look_every_s
    while (at := time.monotonic() - began) < seconds:
        if at >= kill_at and pipeline.kill_worker():
            found.killed += 1
            kill_at += kill_every_s
        if at >= look_at:
            look = pipeline.look(at)
            found.looks.append(look)
            look_at += look_every_s
            console.print(_words(look, trickle.made), markup=False, highlight=False)
        time.sleep(0.2)


def wrong(home: Path, made: int) -> list[str]:
    """What does not add up: each good record is in its views once, each bad one is a letter."""
    import forebay

    poison = made // POISON_EVERY
    expected = {f"v{n}": len(range(n, made, 10)) for n in range(SELECTING)}
    expected |= {"by_symbol": made - poison, "by_minute": made - poison, "symbols": len(SYMBOLS)}
    said = []
    with forebay.connect(home) as db:
        for view, rows in expected.items():
            what = "sum(n)" if view.startswith("by_") else "count(*)"
            [(there,)] = db.sql(f"SELECT {what} AS n FROM {view}").fetchall()
            if there != rows:
                said.append(f"view {view} has {there:,} of {rows:,}")
            if view.startswith("v"):
                [(distinct,)] = db.sql(f"SELECT count(DISTINCT k) AS n FROM {view}").fetchall()
                if distinct != there:
                    said.append(f"view {view} has {there - distinct:,} rows twice")
        for query in db.queries():
            if query.rejected != poison:
                said.append(f"view {query.view} has refused {query.rejected:,} of {poison:,} bad records")
    return said


def measure(
    console: Console, seconds: float = 7200, rate: int = 20_000, kill_every_s: float = 600, look_every_s: float = 0
) -> Section:  # fmt: skip
    busy = machine.busy()
    found = soak(console, seconds, rate, kill_every_s, look_every_s or max(1.0, seconds / 200))
    return section(found, seconds, rate, busy)


CURVES: Mapping[str, tuple[str, Callable[[Look], float | None]]] = {
    "memory": ("memory, MiB", lambda look: sum(look.memory.values())),
    "batch": ("a batch, ms", lambda look: look.batch_ms),
    "files": ("files in the home", lambda look: float(sum(look.files.values()))),
    "descriptors": ("open descriptors", lambda look: float(look.descriptors)),
    "threads": ("threads", lambda look: float(look.threads)),
}


def tenths(looks: Sequence[Look], of: Callable[[Look], float | None]) -> list[list[float]]:
    size = max(1, -(-len(looks) // TENTHS))
    parts = [looks[start : start + size] for start in range(0, len(looks), size)]
    return [[value for look in part if (value := of(look)) is not None] for part in parts]


def growth(looks: Sequence[Look], of: Callable[[Look], float | None]) -> float | None:
    """The last tenth by the second; None where there is too little of either."""
    parts = [part for part in tenths(looks, of) if part]
    return statistics.median(parts[-1]) / statistics.median(parts[1]) if len(parts) > 2 else None


def section(found: Soaked, seconds: float, rate: int, busy: str) -> Section:
    intro = (
        f"`forebay run` with {SELECTING} views that select, two that group and one whose state Spark keeps, over a topic that grows "
        f"by {rate:,} JSON records a second for {seconds / 60:.0f} minutes, 1 % of them broken, with a dead letter each; {found.killed} "
        f"times a Python worker was killed; {busy}. The machine runs broker and producer, too. Tenths of the time; what is "
        "flat is the last by the second, the first being warm-up."
    )
    rows, notes = [], []
    for name, (label, of) in CURVES.items():
        parts = [Spread.of(part) for part in tenths(found.looks, of)]
        rows.append((label, *(part.show(0) if part else "–" for part in parts)))
        ratio = growth(found.looks, of)
        if ratio is not None:
            verdict = "flat" if ratio <= FLAT[name] else "**not flat**"
            notes.append(
                f"{label}, last tenth / second: **{ratio:.2f}**; at most {FLAT[name]:.2f} is flat: {verdict}."
            )
    account = (
        "; ".join(found.wrong) or "every good record is in its views once, every bad one was refused once"
    )
    notes.append(f"{found.made:,} records: {account}.")
    head = ("", *(f"{number * 10} %" for number in range(1, len(rows[0]))))
    return Section(TITLE, intro, (Grid(head, tuple(rows)),), tuple(notes), (_plot(found.looks),))


def _plot(looks: Sequence[Look]) -> Figure:
    roles = sorted({role for look in looks for role in look.memory})
    kinds = sorted({kind for look in looks for kind in look.files})
    at = [f"{look.at_s / 60}" for look in looks]

    def line(name: str, of: Callable[[Look], float | None]) -> Series:
        values = [of(look) for look in looks]
        return Series(name, [[] if value is None else [value] * 3 for value in values])

    panels = [
        Panel("memory, MiB", at, [line(role, lambda look, r=role: look.memory.get(r, 0.0)) for role in roles]),  # type: ignore[misc]
        Panel("a batch, ms", at, [line("mean since the last look", lambda look: look.batch_ms)]),
        Panel("files in the home", at, [line(k, lambda look, k=k: float(look.files.get(k, 0))) for k in kinds]),  # type: ignore[misc]
        Panel("open descriptors", at, [line("all processes", lambda look: float(look.descriptors))]),
        Panel("threads", at, [line("all processes", lambda look: float(look.threads))]),
        Panel("records not read yet", at, [line("the view that is furthest behind", lambda look: look.lag)]),
    ]  # fmt: skip
    return Figure("soak", "lines", "", TITLE, panels, across="minutes")


def _words(look: Look, made: int) -> str:
    batch = "–" if look.batch_ms is None else f"{look.batch_ms:.0f} ms"
    sizes = ", ".join(f"{role} {size:.0f}" for role, size in sorted(look.memory.items()))
    return (
        f"{look.at_s / 60:6.1f} min  {made:,} made  lag {look.lag:,.0f}  batch {batch}  {look.descriptors} descriptors  "
        f"{look.threads} threads  {sum(look.files.values())} files  MiB: {sizes}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--rate", type=int, default=20_000, help="records a second")
    parser.add_argument("--kill-every", type=float, default=600, help="seconds between two kills of a worker")
    given = parser.parse_args()
    measure(Console(stderr=True), given.seconds, given.rate, given.kill_every).show(Console())


if __name__ == "__main__":
    main()
