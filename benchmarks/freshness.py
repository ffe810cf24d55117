"""Claim: how soon after it was produced a record is in the sink, beside stock Spark in the same run.

A producer writes a thousand records a second; each says when it was made. A streaming query hands its
micro-batches, one after the other as fast as they go, to a program that looks at its clock.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console

from benchmarks import machine, topics
from benchmarks.peers import forebay_peer, stock_spark
from benchmarks.peers.contract import Outcome, Task
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import interleave
from forebay.devstack import DevStack

PEERS = (forebay_peer.PEER, stock_spark.PEER)
RATE = 1_000
PARTITIONS = 4
AIMS = {50: 150, 99: 400}  # percentile to ms
TITLE = "Freshness: from the producer into the sink"


def trade(number: int, stamp_ms: int) -> bytes:
    value = (
        b'{"trade_id":%d,"symbol":"V","price":1.5,"quantity":1,"side":"buy","venue":"XNYS","event_time":%d}'
    )
    return value % (number, stamp_ms)


def measure(console: Console, seconds: float = 30, rounds: int = 3) -> Section:
    busy = machine.busy()
    with DevStack() as stack:
        topics.create(stack.bootstrap_servers, "live", PARTITIONS)
        trickle = topics.Trickle(stack.bootstrap_servers, "live", PARTITIONS, RATE, trade)
        trickle.start()
        try:
            task = Task(stack.bootstrap_servers, "live", "", 100_000, work="", live_s=seconds)
            console.print(
                f"{rounds} rounds of {seconds:.0f} s for each of {', '.join(p.name for p in PEERS)}"
            )
            done = interleave(PEERS, task, None, rounds, lambda n, who, found: _tell(console, n, who, found))
        finally:
            trickle.stop()
    found = {
        peer.name: [one for each in done if isinstance(one := each.measured[peer.name], Outcome)]
        for peer in PEERS
    }
    rows, notes = [], []
    for name, outcomes in found.items():
        each = Spread.of([1000 * one.wall_s / one.batches for one in outcomes if one.batches])
        spreads = (*(_spread(outcomes, point) for point in AIMS), each)
        rows.append((name, *(spread.show(0) if spread else "failed" for spread in spreads)))
    for point, aim in AIMS.items():
        ours, theirs = (_spread(found[peer.name], point) for peer in PEERS)
        if ours and theirs:
            verdict = "no worse" if ours.median <= theirs.median else "**worse**"
            reached = "reached" if ours.median < aim else "**missed**"
            notes.append(
                f"p{point}: {ours.median / theirs.median:.2f} of stock Spark's: {verdict}; the aim of {aim} ms is {reached}."
            )
    intro = (
        f"{RATE:,} JSON records a second into {PARTITIONS} partitions; micro-batches as fast as they go, for "
        f"{seconds:.0f} s after 15 s of warm-up; {rounds} rounds in turn; {busy}. Age of a record, in ms, when its batch "
        "has reached the program behind foreachBatch; medians of the rounds, lowest and highest."
    )
    return Section(
        TITLE, intro, (Grid(("peer", "p50", "p99", "ms a micro-batch"), tuple(rows)),), tuple(notes)
    )


def _spread(outcomes: list[Outcome], point: int) -> Spread | None:
    return Spread.of([float(np.percentile(one.ages_ms, point)) for one in outcomes if one.ages_ms])


def _tell(console: Console, number: int, who: str, found: Outcome | str) -> None:
    if isinstance(found, Outcome) and found.ages_ms:
        p50, p99 = np.percentile(found.ages_ms, [50, 99])
        text = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, {found.batches} batches"
    else:
        text = f"failed: {found if isinstance(found, str) else 'no records'}"
    console.print(f"round {number + 1}, {who}: {text}", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    measure(Console(stderr=True), given.seconds, given.rounds).show(Console())


if __name__ == "__main__":
    main()
