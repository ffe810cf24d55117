"""Claims about flow: how soon fetching stops, and that a burst bounds neither memory nor batch times anew.

Fetching: a task's rows are taken slowly, and the kernel says when it last sent a fetch. Planning: another read of the source
has the budget in flight, and this one is asked for its next batch. Burst: ten times the rate, beside stock Spark in the
same run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks import machine, topics
from benchmarks.fetching import Traffic
from benchmarks.freshness import trade
from benchmarks.peers import forebay_peer, stock_spark
from benchmarks.peers.contract import Outcome, Task
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import interleave
from forebay.connectors.contract import SourceConfig
from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.source.batch_size import Cause
from forebay.source.budget import BYTES, Budget
from forebay.source.flow import TARGET_S, FlowLimits, ReadFlow
from forebay.source.flow_folder import FlowFolder, Plan

PEERS = (forebay_peer.PEER, stock_spark.PEER)
PARTITIONS = 4
RATE, TIMES = 5_000, 10
QUIET_S = 5.0  # before the burst and after it
STOPS = 20
AIM_MS = 10.0
TITLE = "Flow: fetching that stops, and a burst"


def measure(console: Console, burst_s: float = 60, rounds: int = 3) -> Section:
    busy = machine.busy()
    with DevStack() as stack:
        fetching = stops(stack.bootstrap_servers)
        planning = holds()
        console.print(
            f"fetching stops {max(fetching):.1f} ms after, planning {max(planning):.1f} ms, at the most"
        )
        found = _bursts(console, stack.bootstrap_servers, burst_s, rounds)
    times = Grid(
        ("from the high watermark to", "p50 ms", "most ms"),
        (("no fetch of a task", *_points(fetching)), ("no batch planned", *_points(planning))),
        "Fetching stops",
    )
    rows = [(name, *_figures(outcomes)) for name, outcomes in found.items()]
    head = ("peer", "records read", "batch p50 ms", "longest batch ms", "most MB", "grew by MB")
    worst = max(*fetching, *planning)
    notes = [
        f"The longest took {worst:.1f} ms; the aim of {AIM_MS:.0f} ms is {'reached' if worst < AIM_MS else '**missed**'}.",
        *bounds(found[forebay_peer.PEER.name]),
    ]
    intro = (
        f"Fetching: {STOPS} times a task whose rows nobody takes any more, and {STOPS} times a read whose source has its budget in "
        f"flight elsewhere. Burst: {RATE:,} JSON records a second into {PARTITIONS} partitions, for {burst_s:.0f} s {TIMES} times as "
        f"many, then as before; {rounds} rounds in turn; {busy}. Memory is that of the peer's whole process tree, JVM and all; it "
        "grew by what it had at the end more than at the beginning."
    )
    return Section(TITLE, intro, (times, Grid(head, tuple(rows), "A burst")), tuple(notes))


def bounds(outcomes: Sequence[Outcome]) -> list[str]:
    """Whether a burst left memory and batch times within their bounds, in the worst round."""
    if not outcomes:
        return []
    longest_s = max(max(one.batch_ms) for one in outcomes) / 1000
    grew_mb = max(max(one.memory) - one.memory[0] for one in outcomes) / 1e6
    most_mb = BYTES / 1e6  # what may be in flight
    return [
        f"{forebay_peer.PEER.name}, a burst, {what}: {value} at most; the bound of {bound} {'holds' if held else '**does not hold**'}."
        for what, value, bound, held in (
            (
                "longest batch",
                f"{longest_s:.1f} s",
                f"{TARGET_S:.0f} s (batch.target.ms)",
                longest_s <= TARGET_S,
            ),
            (
                "most memory above that before it",
                f"{grew_mb:+,.0f} MB",
                f"{most_mb:+,.0f} MB (backpressure.budget.bytes)",
                grew_mb <= most_mb,
            ),
        )
    ]


def stops(servers: str) -> list[float]:
    """Milliseconds from when a task's rows are taken no more to its last fetch; 0 where that one was before."""
    topics.create(servers, "wide", 1)
    made = topics.Trickle(
        servers, "wide", 1, 100_000, lambda number, _: b'{"n": %d, "pad": "%s"}' % (number, b"x" * 2000)
    )
    made.start()
    while made.made < 20_000:
        time.sleep(0.01)
    made.stop()
    port, found = int(servers.rpartition(":")[2]), []
    options = {
        "bootstrap.servers": servers,
        "topic": "wide",
        "group.id": "flow",
        "format": "json",
        "fetch.budget.bytes": "8MB",
    }
    for _ in range(STOPS):
        source = KafkaSource(SourceConfig("wide", "kafka", options, pa.schema([pa.field("n", pa.int64())])))
        with Traffic(port) as traffic:
            batches = source.read_batch(KafkaSplit((Range("wide", 0, 0, made.made),)))
            next(batches)
            stopped = time.monotonic()
            time.sleep(0.1)
            found.append(max(0.0, 1000 * (traffic.last_fetch() - stopped)))
        source.close()
    return found


def holds() -> list[float]:
    """Milliseconds from when another read has the budget in flight until this one knows that it must not fetch."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        flow = FlowFolder(Path(folder) / "flow")
        read = ReadFlow(FlowLimits(budget=Budget(1000)), flow, "all", lambda: ["quick"])
        for _ in range(STOPS):
            flow.forget("view-slow")
            assert read.next(None).records
            flow.write(Plan("view-slow", ("slow",), os.getpid(), 0, 900, 900, 900, Cause.KEPT, ""))
            began = time.monotonic()
            assert not read.next(None).records
            found.append(1000 * (time.monotonic() - began))
    return found


def _bursts(console: Console, servers: str, burst_s: float, rounds: int) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {peer.name: [] for peer in PEERS}
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        for number in range(rounds):
            for peer in PEERS if number % 2 == 0 else PEERS[::-1]:
                topic = f"burst-{number}-{peer.module.rpartition('.')[2]}".replace("_", "-")
                topics.create(servers, topic, PARTITIONS)
                trickle = topics.Trickle(servers, topic, PARTITIONS, RATE, trade)
                trickle.start()
                with _Burst(trickle, warm, burst_s):
                    task = Task(
                        servers, topic, "", 4_000_000, "", live_s=burst_s + 2 * QUIET_S, warm_file=str(warm)
                    )
                    [one] = interleave([peer], task, None, 1, lambda *_: None)
                outcome = one.measured[peer.name]
                if isinstance(outcome, Outcome):
                    found[peer.name].append(outcome)
                    console.print(
                        f"round {number + 1}, {peer.name}: {', '.join(_figures([outcome]))}", markup=False
                    )
                else:
                    console.print(f"round {number + 1}, {peer.name}: failed: {outcome}", markup=False)
    return found


class _Burst:
    """Once the peer is warm: so long ten times the rate, then the rate again. The trickle ends with the block."""

    def __init__(self, trickle: topics.Trickle, warm: Path, seconds: float) -> None:
        self._trickle, self._warm, self._seconds = trickle, warm, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._warm.unlink(missing_ok=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._trickle.stop()

    def _run(self) -> None:
        while not self._warm.exists():
            if self._over.wait(0.1):
                return
        for rate, seconds in ((RATE, QUIET_S), (RATE * TIMES, self._seconds)):
            self._trickle.go_on(rate)
            if self._over.wait(seconds):
                return
        self._trickle.go_on(RATE)
        self._over.wait()


def _figures(outcomes: list[Outcome]) -> tuple[str, ...]:
    def spread(of: Callable[[Outcome], float]) -> str:
        found = Spread.of([of(one) for one in outcomes])
        return "failed" if found is None else found.show(0)

    return (
        spread(lambda one: one.records),
        spread(lambda one: float(np.percentile(one.batch_ms, 50))),
        spread(lambda one: max(one.batch_ms)),
        spread(lambda one: max(one.memory) / 1e6),
        spread(lambda one: (one.memory[-1] - one.memory[0]) / 1e6),
    )


def _points(found: list[float]) -> tuple[str, str]:
    return f"{np.percentile(found, 50):.2f}", f"{max(found):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow", description=__doc__)
    parser.add_argument("--burst-seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    measure(Console(stderr=True), given.burst_seconds, given.rounds).show(Console())


if __name__ == "__main__":
    main()
