"""Claim: Forebay in steady state, beside stock Spark and Flink: so many records that starting does not matter."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product

from rich.console import Console

from benchmarks import cases, comparison, machine
from benchmarks.cases import Case
from benchmarks.contest import Contest, Results
from benchmarks.peers import flink_sql, forebay_sql, spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.report import Section
from forebay.devstack import DevStack

PEERS = (forebay_sql.PEER, spark_sql.PEER, flink_sql.PEER)
TIMEOUT_S = 900.0
QUERIES = ("count", "windows")
WARMUP_RECORDS = 4_000_000  # a JVM goes on compiling for half a minute; steady is what comes after that
TITLE = "Steady state beside Flink"


def measure(console: Console, records: int = 20_000_000, rounds: int = 2) -> Section:
    busy = machine.busy()
    results = by_format(console, PEERS, QUERIES, records, rounds, WARMUP_RECORDS)
    intro = (
        f"{records:,} medium records in 4 partitions, as JSON and as Avro; the same peers, questions and checks as "
        f"above, each after a warm-up of {WARMUP_RECORDS:,}; {busy}. Net of job start is what counts here."
    )
    names = [peer.name for peer in PEERS]
    chosen = [Case(form, query) for form, query in product(cases.FORMATS, QUERIES)]
    grids = tuple(comparison.case_grid(results, case, names).titled(case.name) for case in chosen)
    return Section(TITLE, intro, grids, tuple(comparison.failures(results)))


def by_format(
    console: Console, peers: Sequence[Peer], queries: Sequence[str], records: int, rounds: int, warmup: int
) -> Results:
    """The queries over each format, one after the other: only one of the big topics is on the disk."""
    results = Results(rounds)
    with (
        DevStack() as stack,
        Contest(console, stack.bootstrap_servers, peers, TIMEOUT_S, warmup) as contest,
    ):
        for form in cases.FORMATS:
            part = contest.run([Case(form, query) for query in queries], records, rounds)
            results.measured |= part.measured
            results.versions |= part.versions
            contest.forget_topics()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.rounds).show(Console())


if __name__ == "__main__":
    main()
