"""Claim: how fast JSON gets from a topic into typed Spark columns, beside stock Spark in the same run.

Every peer reads the same topic on the same broker with the same Spark master, heap and size of
micro-batch, in a streaming query that hashes every column. JVM start, imports and a first query on a small
topic are over before the clock starts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from benchmarks import machine, report
from benchmarks.peers import forebay_peer, stock_spark
from benchmarks.peers.contract import Outcome, Task
from benchmarks.runner import Measured, interleave
from benchmarks.topics import produce
from forebay.devstack import DevStack

PEERS = (forebay_peer.PEER, stock_spark.PEER)
OURS, THEIRS = forebay_peer.PEER.name, stock_spark.PEER.name
WARMUP_RECORDS = 200_000  # enough that both cores have a worker and the JVM has compiled its inner loops


def measure(
    console: Console, records: int = 1_000_000, rounds: int = 5, partitions: int = 4, batch: int = 250_000
) -> report.Section:
    busy = machine.busy()
    with DevStack() as stack:
        console.print(f"producing {records:,} records into {partitions} partitions")
        produce(stack.bootstrap_servers, "warmup", WARMUP_RECORDS, partitions)
        produce(stack.bootstrap_servers, "trades", records, partitions)
        task = Task(stack.bootstrap_servers, "trades", "warmup", batch, work="")

        def say(number: int, peer: str, found: Measured) -> None:
            what = f"{found.rate:,.0f} records/s" if isinstance(found, Outcome) else f"failed: {found}"
            console.print(f"round {number + 1} of {rounds}, {peer}: {what}", markup=False)

        done = interleave(PEERS, task, records, rounds, say)
    intro = (
        f"{records:,} JSON records of about 120 bytes in {partitions} partitions, micro-batches of {batch:,}, "
        f"{task.master}, JVM heap {task.heap}; {busy}. Wall time from the start of the query to its end; inside "
        "batches: without starting the query and without Spark's logs between batches. CPU time of the peer's whole process tree; the broker shares the cores with the peer and is not counted."
    )
    grids = (report.summary_grid(done), report.round_grid(done, OURS, THEIRS))
    notes = (*report.ratio_notes(done, OURS, THEIRS), *_where(report.outcomes(done, OURS)))
    return report.Section("Throughput: JSON from Kafka into Spark", intro, grids, notes)


def _where(ours: Sequence[Outcome]) -> tuple[str, ...]:
    """In which of our processes the CPU time goes."""
    if not ours:
        return ()
    names = sorted({name for outcome in ours for name in outcome.cpu})
    parts = {name: report.Spread.of([o.cpu.get(name, 0.0) / o.cpu_s * 100 for o in ours]) for name in names}
    shares = ", ".join(
        f"{name} {part.median:.0f} %" for name, part in parts.items() if part and part.median >= 1
    )
    return (f"{OURS}'s CPU time by program: {shares} (medians).",)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=250_000, help="the most records in a micro-batch")
    given = parser.parse_args()
    console = Console(stderr=True)
    section = measure(console, given.records, given.rounds, given.partitions, given.batch)
    section.show(Console())


if __name__ == "__main__":
    main()
