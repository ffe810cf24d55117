"""Claim: rows that are late in windows with one slow and one silent partition, beside Flink SQL on the same topic.

Four partitions are written to in real time. Two keep pace with the clock, one is half a minute behind it, and one falls
silent for longer than the idle timeout, then sends what it had held back. No row is out of order in its partition. Both
engines read the topic while it is written, with the same delay, timeout and windows; at the end every partition gets a
record from the far end, which closes all windows. What is not in a window then was dropped as late.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
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
DELAY_S, IDLE_S, WINDOW_S = 2, 3, 5
BEHIND_S = 30  # so far the slow partition is behind
TICK_S = 0.1
END_S = 3600  # so far ahead is the record that closes all windows
BEFORE_S = 5.0
CLOSE_S = 60.0  # so long an engine may take to give them out
EVEN, SLOW, SILENT = (0, 1), 2, 3
TITLE = "Late rows: one slow and one silent partition"


class Production(threading.Thread):
    """Writes the topic in real time, and counts. What the silent partition holds back it sends when it is silent no more."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
        self._topic = topic
        self._ended = threading.Event()
        self.silent = False
        self.sent = dict.fromkeys((*EVEN, SLOW, SILENT), 0)

    def run(self) -> None:
        held: list[int] = []
        while not self._ended.wait(TICK_S):
            now_ms = int(time.time() * 1000)
            times = [now_ms + step for step in range(round(RATE * TICK_S))]
            for partition in EVEN:
                self._send(partition, times)
            self._send(SLOW, [at - BEHIND_S * 1000 for at in times])
            held += times
            if not self.silent:
                self._send(SILENT, held)
                held = []
            self._producer.flush()

    def end(self) -> None:
        """And close all windows: with a record from the far end in each partition, twice, since what closes is the batch after."""
        self._ended.set()
        self.join()
        for _ in range(2):
            for partition in self.sent:
                at = int((time.time() + END_S) * 1000)
                self._producer.produce(
                    self._topic, json.dumps({"p": -1, "event_time": at}), partition=partition
                )
            self._producer.flush()
            time.sleep(1)

    def _send(self, partition: int, times_ms: list[int]) -> None:
        for at in times_ms:
            self._producer.produce(
                self._topic, json.dumps({"p": partition, "event_time": at}), partition=partition
            )
        self.sent[partition] += len(times_ms)


class Here:
    """Two views over one source."""

    VIEWS: ClassVar[dict[str, str]] = {
        "Forebay, EMIT CHANGES": "changes",
        "Forebay, EMIT ON WINDOW CLOSE": "closed",
    }

    def __init__(self, bootstrap_servers: str, topic: str, home: Path) -> None:
        self._db = forebay.connect(home=home, master="local[2]")
        self._db.execute(
            f"CREATE SOURCE trades (p INT, event_time TIMESTAMP, WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_S}' "
            f"SECOND) FROM KAFKA (brokers = '{bootstrap_servers}', topic = '{topic}', group_id = 'lateness', "
            f"'watermark.idle.timeout.ms' = '{IDLE_S * 1000}', 'auto.offset.reset' = 'earliest') FORMAT JSON"
        )
        for view, emit in (("changes", "CHANGES"), ("closed", "ON WINDOW CLOSE")):
            self._db.execute(
                f"CREATE MATERIALIZED VIEW {view} AS SELECT window_start, p, count(*) AS n FROM trades "
                f"GROUP BY TUMBLE(event_time, INTERVAL '{WINDOW_S}' SECOND), p EMIT {emit}"
            )

    def counts(self, view: str) -> dict[int, int]:
        found = self._db.sql(f"SELECT p, sum(n) AS n FROM {view} WHERE p >= 0 GROUP BY p").fetchall()
        return {partition: int(n) for partition, n in found}

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
            "p INT", "event_time BIGINT", "`at` AS TO_TIMESTAMP_LTZ(event_time, 3)",
            f"WATERMARK FOR `at` AS `at` - INTERVAL '{DELAY_S}' SECOND",
        ]  # fmt: skip
        options = {
            "connector": "kafka", "topic": topic, "properties.bootstrap.servers": bootstrap_servers,
            "properties.group.id": "flink-lateness", "scan.startup.mode": "earliest-offset", "format": "json",
            "scan.watermark.idle-timeout": f"{IDLE_S} s",
        }  # fmt: skip
        kept = flink_sql.files_table("kept", {"p": "INT", "n": "BIGINT"}, self._folder)
        insert = (
            "INSERT INTO kept SELECT p, count(*) AS n FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(`at`), "
            f"INTERVAL '{WINDOW_S}' SECOND)) GROUP BY window_start, window_end, p"
        )
        self._flink.ask(
            {"statements": [flink_sql.table("trades", columns, options), kept], "inserts": [insert]}
        )

    def counts(self) -> dict[int, int]:
        from pyarrow import dataset

        found: dict[int, int] = {}
        files = [str(path) for path in self._folder.glob("*") if not path.name.startswith((".", "_"))]
        rows = dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
        for row in rows:
            found[row["p"]] = found.get(row["p"], 0) + row["n"]
        return {partition: n for partition, n in found.items() if partition >= 0}

    def close(self) -> None:
        self._flink.close()


def measure(console: Console, seconds: float = 120) -> Section:
    busy = machine.busy()
    work = Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    failed = ""
    try:
        with forebay.DevStack() as stack:
            servers = stack.bootstrap_servers
            topics.create(servers, "late", 4)
            production = Production(servers, "late")
            production.start()
            time.sleep(BEFORE_S)  # no partition is empty when an engine begins
            here = Here(servers, "late", work / "home")
            flink: Flink | None = None
            try:
                flink = Flink(servers, "late", work)
            except Exception as error:  # without it there is still our own figure
                failed = without_paths(f"{type(error).__name__}: {error}")
            try:
                time.sleep(BEFORE_S)
                console.print(f"{seconds:.0f} s of {RATE} records a second into each of four partitions")
                for silent, share in ((False, 0.25), (True, 0.5), (False, 0.25)):
                    production.silent = silent
                    time.sleep(seconds * share)
                production.end()
                found = {
                    name: _settled(lambda view=view: here.counts(view)) for name, view in here.VIEWS.items()
                }  # type: ignore[misc]
                if flink is not None:
                    found[flink_sql.NAME] = _settled(flink.counts)
            finally:
                here.close()
                if flink is not None:
                    flink.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _section(production.sent, found, seconds, busy, failed)


def _settled(counts: Callable[[], dict[int, int]]) -> dict[int, int]:
    """What there is once it has not changed for a while."""
    until = time.monotonic() + CLOSE_S
    found, same_since = counts(), time.monotonic()
    while time.monotonic() < until and (not found or time.monotonic() - same_since < 10):
        time.sleep(1)
        if (now := counts()) != found:
            found, same_since = now, time.monotonic()
    return found


def _section(
    sent: dict[int, int], found: dict[str, dict[int, int]], seconds: float, busy: str, failed: str
) -> Section:
    names = {EVEN[0]: "even", EVEN[1]: "even", SLOW: f"{BEHIND_S} s behind", SILENT: "silent for a while"}
    rows = []
    for name, counted in found.items():
        late = {partition: sent[partition] - counted.get(partition, 0) for partition in sent}
        rows.append((name, *(f"{late[partition]:,}" for partition in sent), f"{sum(late.values()):,}"))
    notes = [f"Of {sum(sent.values()):,} rows."] + (
        [f"Flink SQL could not be measured: {failed}"] if failed else []
    )
    intro = (
        f"{seconds:.0f} s of {RATE} records a second into each of four partitions, no row out of order in its own; delay "
        f"{DELAY_S} s, idle timeout {IDLE_S} s, windows of {WINDOW_S} s; {busy}. Rows that are in no window at the end."
    )
    return Section(
        TITLE, intro, (Grid(("engine", *(names[n] for n in sent), "all"), tuple(rows)),), tuple(notes)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lateness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    measure(Console(stderr=True), parser.parse_args().seconds).show(Console())


if __name__ == "__main__":
    main()
