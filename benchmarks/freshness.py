"""Claim: how soon after it was produced a record is in the sink, beside stock Spark in the same run.

A producer writes a thousand records a second, then fifty thousand; each says when it was made. A streaming query hands its
micro-batches, one after the other as fast as they go, to a program that looks at its clock.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console

from benchmarks import machine, topics
from benchmarks.peers import forebay_peer, stock_spark
from benchmarks.peers.contract import Outcome, Task
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import interleave
from forebay.devstack import DevStack

PEERS = (forebay_peer.PEER, stock_spark.PEER)
RATES = (1_000, 50_000)
AIMED = 1_000  # the rate that the aims are for
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
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    with DevStack() as stack:
        for rate in RATES:
            found, made = _outcomes(console, stack.bootstrap_servers, rate, seconds, rounds)
            rows += [(f"{rate:,}", name, *_figures(outcomes)) for name, outcomes in found.items()]
            notes += _ratios(rate, found)
            if made < 0.95 * rate:
                notes.append(f"{rate:,} a second: the producer managed {made:,.0f}.")
    intro = (
        f"JSON records, {' and '.join(f'{rate:,}' for rate in RATES)} a second, into {PARTITIONS} partitions; micro-batches as fast "
        f"as they go, for {seconds:.0f} s after 15 s of warm-up; {rounds} rounds in turn; {busy}. Age of a record, in ms, when its "
        "batch has reached the program behind foreachBatch; medians of the rounds, lowest and highest. The producer runs on the "
        "same machine."
    )
    head = ("records a second", "peer", "p50", "p99", "ms a micro-batch")
    return Section(TITLE, intro, (Grid(head, tuple(rows)),), tuple(notes))


def _outcomes(
    console: Console, servers: str, rate: int, seconds: float, rounds: int
) -> tuple[dict[str, list[Outcome]], float]:
    """By peer, and how many records a second were made at the least."""
    console.print(
        f"{rate:,} a second: {rounds} rounds of {seconds:.0f} s for each of {', '.join(p.name for p in PEERS)}"
    )
    found: dict[str, list[Outcome]] = {peer.name: [] for peer in PEERS}
    least = float(rate)
    for number in range(rounds):
        for peer in PEERS if number % 2 == 0 else PEERS[::-1]:
            # Of its own: a topic that others have been measured on is a backlog of minutes.
            topic = f"live-{rate}-{number}-{peer.module.rpartition('.')[2]}".replace("_", "-")
            topics.create(servers, topic, PARTITIONS)
            trickle = topics.Trickle(servers, topic, PARTITIONS, rate, trade)
            trickle.start()
            began = time.monotonic()
            try:
                task = Task(servers, topic, "", 100_000, work="", live_s=seconds)
                [one] = interleave([peer], task, None, 1, lambda *_: None)
                least = min(least, trickle.made / (time.monotonic() - began))
            finally:
                trickle.stop()
            topics.delete(servers, [topic])
            outcome = one.measured[peer.name]
            _tell(console, number, peer.name, outcome)
            if isinstance(outcome, Outcome):
                found[peer.name].append(outcome)
    return found, least


def _figures(outcomes: list[Outcome]) -> tuple[str, ...]:
    each = Spread.of([1000 * one.wall_s / one.batches for one in outcomes if one.batches])
    spreads = (*(_spread(outcomes, point) for point in AIMS), each)
    return tuple(spread.show(0) if spread else "failed" for spread in spreads)


def _ratios(rate: int, found: dict[str, list[Outcome]]) -> list[str]:
    notes = []
    for point, aim in AIMS.items():
        ours, theirs = (_spread(found[peer.name], point) for peer in PEERS)
        if ours and theirs:
            verdict = "no worse" if ours.median <= theirs.median else "**worse**"
            reached = f"; the aim of {aim} ms is {'reached' if ours.median < aim else '**missed**'}"
            ratio = (
                f"{rate:,} a second, p{point}: {ours.median / theirs.median:.2f} of stock Spark's: {verdict}"
            )
            notes.append(f"{ratio}{reached if rate == AIMED else ''}.")
    return notes


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
