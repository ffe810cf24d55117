"""Claim: the memory of the Python workers stays flat, however many records go through.

A streaming query reads the topic in micro-batches while the driver looks at the resident memory of the
workers. The first tenth of the time is warm-up: allocators and fetch buffers grow to their working size.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence

from rich.console import Console

from benchmarks.peers import forebay_peer
from benchmarks.peers.contract import Sample, Task
from benchmarks.peers.environment import PeerError
from benchmarks.report import Grid, Section
from benchmarks.runner import prepare, run
from benchmarks.topics import produce
from forebay.devstack import DevStack

WARMUP_SHARE = 0.1
FLAT = 1.10  # the last quarter's median may be this much of the first's
SAMPLE_S = 0.25
_MIB = 2**20
TITLE = "Memory of the Python workers"


def quarters(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples after the warm-up, in four parts of equal time."""
    if not samples:
        return [[], [], [], []]
    begin = samples[0].at_s + (samples[-1].at_s - samples[0].at_s) * WARMUP_SHARE
    step = (samples[-1].at_s - begin) / 4 or 1.0
    parts: list[list[Sample]] = [[], [], [], []]
    for sample in samples:
        if sample.at_s >= begin and sample.workers:
            parts[min(3, math.floor((sample.at_s - begin) / step))].append(sample)
    return parts


def largest(sample: Sample) -> int:
    return max(sample.workers.values())


def total(sample: Sample) -> int:
    return sum(sample.workers.values())


def growth(samples: Sequence[Sample]) -> float | None:
    """The last quarter's median to the first's, of all workers together; None without samples."""
    parts = quarters(samples)
    if not parts[0] or not parts[3]:
        return None
    return statistics.median(map(total, parts[3])) / statistics.median(map(total, parts[0]))


def grid(samples: Sequence[Sample]) -> Grid:
    rows = []
    for number, part in enumerate(quarters(samples), 1):
        if not part:
            rows.append((str(number), *["no sample"] * 7))
            continue
        everything = [total(sample) for sample in part]
        shown = (everything[0], statistics.median(everything), everything[-1], max(everything))
        rest = (statistics.median(map(largest, part)), statistics.median(sample.planner for sample in part))
        counts = sorted({len(sample.workers) for sample in part})
        workers = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        rows.append((str(number), workers, *(f"{value / _MIB:.0f}" for value in (*shown, *rest))))
    head = ("quarter", "workers", "start", "median", "end", "highest", "largest worker", "planner")
    return Grid(head, tuple(rows))


def measure(
    console: Console, records: int = 10_000_000, partitions: int = 4, batch: int = 250_000
) -> Section:
    intro = (
        f"{records:,} JSON records in micro-batches of {batch:,} through one streaming query; resident memory in "
        f"MiB, all workers together, every {SAMPLE_S} s. The first {WARMUP_SHARE:.0%} of the time is warm-up and "
        "left out; the rest is cut into quarters."
    )
    with DevStack() as stack:
        console.print(f"producing {records:,} records into {partitions} partitions")
        produce(stack.bootstrap_servers, "warmup", batch, partitions)
        produce(stack.bootstrap_servers, "trades", records, partitions)
        console.print(f"reading them in micro-batches of {batch:,}")
        task = Task(stack.bootstrap_servers, "trades", "warmup", batch, work="", sample_s=SAMPLE_S)
        try:
            ready = prepare(forebay_peer.PEER)
            if isinstance(ready, str):
                raise PeerError(ready)
            outcome = run(forebay_peer.PEER, ready, task)
        except PeerError as error:
            return Section(TITLE, intro, (), (f"Failed: {error}",))
    grown = growth(outcome.samples)
    verdict = "too few samples to say" if grown is None else "flat" if grown <= FLAT else "NOT flat"
    notes = [
        f"{outcome.records:,} of {records:,} records in {outcome.batches} micro-batches, {outcome.wall_s:.0f} s, "
        f"{outcome.rate:,.0f} records/s, {len(outcome.samples)} samples.",
    ]
    if grown is not None:
        notes.append(
            f"Last quarter / first quarter, medians: **{grown:.2f}**; at most {FLAT:.2f} is flat: **{verdict}**."
        )
    else:
        notes.append(f"**{verdict}**.")
    return Section(TITLE, intro, (grid(outcome.samples),), tuple(notes))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=250_000, help="the most records in a micro-batch")
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.partitions, given.batch).show(Console())


if __name__ == "__main__":
    main()
