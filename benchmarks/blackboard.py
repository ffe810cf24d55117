"""The blackboard's smoke: 50,000 artifacts in 8 partitions, beside Flock's own stores in the same run.

Flock's stores are a dict in memory and a file of one machine: neither is shared between processes, and the first
is gone with its process. What a log that everybody shares costs beside them is the question.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping

from rich.console import Console
from scripts.flock import VERSION, environment

from benchmarks.peers.environment import PeerError, last_words
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import ROOT
from forebay.devstack import DevStack

STORES = {
    "memory": f"Flock {VERSION}, in memory",
    "sqlite": f"Flock {VERSION}, SQLite",
    "kafka": "Forebay, Kafka",
    "kafka-tx": "Forebay, Kafka, transactions",
}
PARTITIONS = 8
PUBLISHERS = 100
TIMEOUT_S = 900
TITLE = "The blackboard beside Flock's stores"
FIGURES = ("makespan_s", "publish_p95_ms", "alone_p95_ms", "get_p95_ms", "rss_mb")


def measure(console: Console, artifacts: int = 50_000, rounds: int = 3) -> Section:
    python = str(environment())
    found: dict[str, list[Mapping[str, float]]] = {store: [] for store in STORES}
    with DevStack() as stack:
        for number in range(rounds):
            for store, name in STORES.items():
                console.print(f"round {number + 1} of {rounds}: {artifacts:,} artifacts, {name}")
                found[store].append(_run(python, stack.bootstrap_servers, store, artifacts))
    base = statistics.median(each["makespan_s"] for each in found["sqlite"])
    rows = []
    for store, name in STORES.items():
        cells = [Spread.of([each[figure] for each in found[store]]) for figure in FIGURES]
        makespan = statistics.median(each["makespan_s"] for each in found[store])
        rows.append((name, *(cell.show() if cell else "" for cell in cells), f"{base / makespan:.2f}"))
    head = (
        "store", "makespan, s", "publish p95, ms", "publish p95 alone, ms", "get p95, ms", "memory, MB",
        "speed / SQLite",
    )  # fmt: skip
    intro = (
        f"{artifacts:,} artifacts of about 400 bytes, {PARTITIONS} partitions, {PUBLISHERS} publishers at a time in one "
        f"process, {rounds} rounds, in turn. The makespan ends when a reader of the same process has seen the last one. "
        "Alone: one publisher that waits for each. Get: one artifact after another, at random, when all are there."
    )
    return Section(TITLE, intro, (Grid(head, tuple(rows)),), ())


def _run(python: str, servers: str, store: str, artifacts: int) -> Mapping[str, float]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [
        python,
        "-m",
        "benchmarks.peers.boards",
        store,
        servers,
        str(artifacts),
        str(PUBLISHERS),
        str(PARTITIONS),
    ]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise PeerError(f"{store}: {last_words(done.stderr)}")
    measured: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blackboard", description=__doc__)
    parser.add_argument("--artifacts", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    measure(Console(stderr=True), given.artifacts, given.rounds).show(Console(width=200))


if __name__ == "__main__":
    main()
