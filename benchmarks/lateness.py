"""Claim: rows that are late in windows whose partitions differ, beside Flink SQL on the same topic.

Five partitions are written to in real time, and no row is out of order in its own. Two keep pace with the clock. One is
some seconds behind. One falls silent for longer than the idle timeout and then sends what it has held back, as a device does
that was offline. One is empty at first, and then sends what it has held back, as a device does that is new. At last the broker is
frozen for longer than the idle timeout: producers hold their rows back, and reach it again one after the other.

Both engines read the topic while it is written, with the same delay, timeout and windows; at the end every partition gets a
record from the far end, which closes all windows. What is not in a window then was dropped as late.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from confluent_kafka import Producer
from rich.console import Console

import forebay
from benchmarks import machine, topics
from benchmarks.peers import flink_sql
from benchmarks.peers.session import Opening
from benchmarks.report import Grid, Section
from benchmarks.runner import WORK, without_paths

RATE = 100  # records a second and partition
DELAY_S, IDLE_S, WINDOW_S = 2, 4, 5
BEHIND_S = 5  # so far the slow partition is behind
FROZEN_S = 3 * IDLE_S
APART_S = 0.5  # so long after the first producer the others reach a broker that is back
TICK_S = 0.1
END_S = 3600  # so far ahead is the record that closes all windows
BEFORE_S = 5.0
CLOSE_S = 60.0  # so long an engine may take to give them out
EVEN, SLOW, SILENT, NEW = (0, 1), 2, 3, 4
ALL = (*EVEN, SLOW, SILENT, NEW)
BEFORE, AFTER = 0, 1  # which rows were made before the broker was frozen, and which since
TITLE = "Late rows: partitions that are slow, silent or new, and a broker that is frozen"

Counts = Mapping[tuple[int, int], int]
"""Rows by phase and partition."""


class Production(threading.Thread):
    """Writes the topic in real time, and counts. What `held` partitions have, they send when they are held no more."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
        self._topic = topic
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._waiting: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ALL}
        self.phase = BEFORE
        self.held: set[int] = {NEW}
        self.sent: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                now_ms = int(time.time() * 1000)
                for partition in ALL:
                    behind_ms = BEHIND_S * 1000 if partition == SLOW else 0
                    self._waiting[partition] += [
                        (self.phase, now_ms + step - behind_ms) for step in range(round(RATE * TICK_S))
                    ]
                self._send()

    def reach(self) -> None:
        """Send what is not held, and wait until the broker has it."""
        with self._lock:
            self._send()
        self._producer.flush()

    def end(self) -> None:
        """And close all windows: with a record from the far end in each partition, twice, since what closes is the batch after."""
        self._ended.set()
        self.join()
        self.reach()
        for _ in range(2):
            at = int((time.time() + END_S) * 1000)
            for partition in ALL:
                self._produce(partition, {"p": -1, "phase": 0, "event_time": at})
            self._producer.flush()
            time.sleep(1)

    def _send(self) -> None:
        for partition in set(ALL) - self.held:
            for phase, at in self._waiting[partition]:
                self._produce(partition, {"p": partition, "phase": phase, "event_time": at})
                self.sent[phase, partition] = self.sent.get((phase, partition), 0) + 1
            self._waiting[partition] = []
        self._producer.poll(0)

    def _produce(self, partition: int, row: Mapping[str, int]) -> None:
        self._producer.produce(self._topic, json.dumps(row), partition=partition)


class Here:
    """Two views over one source."""

    VIEWS: ClassVar[dict[str, str]] = {
        "Forebay, EMIT CHANGES": "changes",
        "Forebay, EMIT ON WINDOW CLOSE": "closed",
    }

    def __init__(self, bootstrap_servers: str, topic: str, home: Path) -> None:
        self._db = forebay.connect(home=home, master="local[2]")
        self._db.execute(
            "CREATE SOURCE trades (p INT, phase INT, event_time TIMESTAMP, "
            f"WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_S}' "
            f"SECOND) FROM KAFKA (brokers = '{bootstrap_servers}', topic = '{topic}', group_id = 'lateness', "
            f"'watermark.idle.timeout.ms' = '{IDLE_S * 1000}', 'auto.offset.reset' = 'earliest') FORMAT JSON"
        )
        for view, emit in (("changes", "CHANGES"), ("closed", "ON WINDOW CLOSE")):
            self._db.execute(
                f"CREATE MATERIALIZED VIEW {view} AS SELECT window_start, p, phase, count(*) AS n FROM trades "
                f"GROUP BY TUMBLE(event_time, INTERVAL '{WINDOW_S}' SECOND), p, phase EMIT {emit}"
            )

    def counts(self, view: str) -> Counts:
        found = self._db.sql(
            f"SELECT phase, p, sum(n) AS n FROM {view} WHERE p >= 0 GROUP BY phase, p"
        ).fetchall()
        return {(phase, partition): int(n) for phase, partition, n in found}

    def close(self) -> None:
        self._db.close()


class Flink:
    """A window aggregation into Parquet files, with the timeout of its Kafka table."""

    def __init__(self, bootstrap_servers: str, topic: str, work: Path) -> None:
        prepared = flink_sql.prepare(WORK)
        self._folder = work / "flink"
        opening = Opening(bootstrap_servers, str(work), own=prepared.own)
        self._flink = flink_sql.FlinkSql(
            opening, {**flink_sql.SETTINGS, "execution.checkpointing.interval": "1 s"}
        )
        columns = [
            "p INT", "phase INT", "event_time BIGINT", "`at` AS TO_TIMESTAMP_LTZ(event_time, 3)",
            f"WATERMARK FOR `at` AS `at` - INTERVAL '{DELAY_S}' SECOND",
        ]  # fmt: skip
        options = {
            "connector": "kafka", "topic": topic, "properties.bootstrap.servers": bootstrap_servers,
            "properties.group.id": "flink-lateness", "scan.startup.mode": "earliest-offset", "format": "json",
            "scan.watermark.idle-timeout": f"{IDLE_S} s",
        }  # fmt: skip
        kept = flink_sql.files_table("kept", {"phase": "INT", "p": "INT", "n": "BIGINT"}, self._folder)
        insert = (
            "INSERT INTO kept SELECT phase, p, count(*) AS n FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(`at`), "
            f"INTERVAL '{WINDOW_S}' SECOND)) GROUP BY window_start, window_end, phase, p"
        )
        self._flink.ask(
            {"statements": [flink_sql.table("trades", columns, options), kept], "inserts": [insert]}
        )

    def counts(self) -> Counts:
        from pyarrow import dataset

        found: dict[tuple[int, int], int] = {}
        files = [str(path) for path in self._folder.glob("*") if not path.name.startswith((".", "_"))]
        rows = dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
        for row in rows:
            place = row["phase"], row["p"]
            found[place] = found.get(place, 0) + row["n"]
        return {place: n for place, n in found.items() if place[1] >= 0}

    def close(self) -> None:
        self._flink.close()


def measure(console: Console, seconds: float = 120) -> Section:
    busy = machine.busy()
    work = Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    failed = ""
    try:
        with forebay.DevStack() as stack:
            servers = stack.bootstrap_servers
            topics.create(servers, "late", len(ALL))
            production = Production(servers, "late")
            production.start()
            time.sleep(BEFORE_S)  # no partition but the new one is empty when an engine begins
            here = Here(servers, "late", work / "home")
            flink: Flink | None = None
            try:
                flink = Flink(servers, "late", work)
            except Exception as error:  # without it there is still our own figure
                failed = without_paths(f"{type(error).__name__}: {error}")
            try:
                time.sleep(BEFORE_S)
                _play(console, production, stack, seconds)
                found: dict[str, Counts] = {}
                for name, view in here.VIEWS.items():
                    found[name] = _settled(lambda view=view: here.counts(view))  # type: ignore[misc]
                if flink is not None:
                    found[flink_sql.NAME] = _settled(flink.counts)
            finally:
                here.close()
                if flink is not None:
                    flink.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _section(production.sent, found, seconds, busy, failed)


def _play(console: Console, production: Production, stack: forebay.DevStack, seconds: float) -> None:
    console.print(f"{seconds:.0f} s of {RATE} records a second into each of {len(ALL)} partitions")
    for held, share in (({NEW}, 0.25), ({SILENT, NEW}, 0.5), (set[int](), 0.25)):
        production.held = held
        time.sleep(seconds * share)
    console.print(f"the broker is frozen for {FROZEN_S} s")
    production.held, production.phase = set(ALL), AFTER
    process = stack.broker.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(FROZEN_S)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    production.held = set(ALL) - {EVEN[0]}
    production.reach()
    time.sleep(APART_S)
    production.held = set()
    time.sleep(seconds * 0.25)
    production.end()


def _settled(counts: Callable[[], Counts]) -> Counts:
    """What there is once it has not changed for a while."""
    until = time.monotonic() + CLOSE_S
    found, same_since = counts(), time.monotonic()
    while time.monotonic() < until and (not found or time.monotonic() - same_since < 10):
        time.sleep(1)
        if (now := counts()) != found:
            found, same_since = now, time.monotonic()
    return found


def _section(sent: Counts, found: Mapping[str, Counts], seconds: float, busy: str, failed: str) -> Section:
    columns: dict[str, list[tuple[int, int]]] = {
        "even": [(BEFORE, partition) for partition in EVEN],
        f"{BEHIND_S} s behind": [(BEFORE, SLOW)],
        "silent for a while": [(BEFORE, SILENT)],
        "new": [(BEFORE, NEW)],
        "all, since the broker was frozen": [(AFTER, partition) for partition in ALL],
    }

    def late(counted: Counts, places: list[tuple[int, int]]) -> int:
        return sum(sent.get(place, 0) - counted.get(place, 0) for place in places)

    rows = []
    for name, counted in found.items():
        each = [late(counted, places) for places in columns.values()]
        rows.append((name, *(f"{n:,}" for n in each), f"{sum(each):,}"))
    rows.append(
        ("rows in all", *(f"{late({}, places):,}" for places in columns.values()), f"{sum(sent.values()):,}")
    )
    notes = [f"Flink SQL could not be measured: {failed}"] if failed else []
    notes.append(
        "EMIT CHANGES here takes a row that is no later than allowed in its own partition, whatever other partitions did. EMIT ON "
        "WINDOW CLOSE here, and Flink's windows, are given out once: rows of a partition that was idle are late for those."
    )
    intro = (
        f"{seconds:.0f} s of {RATE} records a second into each of {len(ALL)} partitions, no row out of order in its own, then a "
        f"broker that is frozen for {FROZEN_S} s, and {seconds / 4:.0f} s more; the first producer reaches it {APART_S} s before the others. "
        f"Delay {DELAY_S} s, idle timeout {IDLE_S} s, windows of {WINDOW_S} s; {busy}. Rows that are in no window at the end."
    )
    return Section(TITLE, intro, (Grid(("engine", *columns, "all rows"), tuple(rows)),), tuple(notes))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lateness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    measure(Console(stderr=True), parser.parse_args().seconds).show(Console())


if __name__ == "__main__":
    main()
