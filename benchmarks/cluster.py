"""Claim: on a cluster of two workers of one core, Forebay is nearly as fast as on this machine's two cores alone.

The same pipelines, with nothing changed but the master. The cluster is a standalone one on loopback: what it costs is that tasks run
in JVMs of their own and their answers cross the network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from scripts.spark_cluster import SparkCluster

from benchmarks import cases, comparison, machine
from benchmarks.cases import Case
from benchmarks.contest import OURS, Contest, Results
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers import forebay_sql
from benchmarks.peers.contract import Peer, Prepared
from benchmarks.report import Grid, Section
from forebay.devstack import DevStack

LOCAL = "local[2]"
LEAST = 0.8  # of the records/s on this machine alone
WARMUP_RECORDS = 500_000
TIMEOUT_S = 600.0
CASES = tuple(Case(form, query) for form in cases.FORMATS for query in ("rows", "count"))
TITLE = "A cluster beside one machine"


def measure(console: Console, records: int = 5_000_000, rounds: int = 3) -> Section:
    busy = machine.busy()
    with tempfile.TemporaryDirectory() as folder, DevStack() as stack, SparkCluster(Path(folder)) as spark:
        peers = [_forebay(OURS, spark.url), _forebay(LOCAL, LOCAL)]
        warmup = min(records, WARMUP_RECORDS)
        with Contest(console, stack.bootstrap_servers, peers, TIMEOUT_S, warmup) as contest:
            results = contest.run(CASES, records, rounds)
    return section(results, records, busy)


def _forebay(name: str, master: str) -> Peer:
    own = {"master": master}
    return Peer(name, forebay_sql.PEER.module, lambda _: Prepared(sys.executable, own))


def section(results: Results, records: int, busy: str) -> Section:
    intro = (
        f"{records:,} medium records in 4 partitions, as JSON and as Avro; {results.rounds} rounds in turn; {busy}. Forebay "
        f"twice: on a standalone cluster of a master and two workers of one core each, on this machine, and with {LOCAL}. "
        "rows: all rows into a Delta table; count: a count and a sum. Every answer is checked. Net of job start is what counts."
    )
    notes = (*verdicts(results), *comparison.failures(results))
    return Section(TITLE, intro, (grid(results),), notes, (_figure(results),))


def grid(results: Results) -> Grid:
    rows = []
    for case in CASES:
        speeds = [
            comparison.shown(comparison.spread(results.of(case, peer), figure), 0)
            for figure in (comparison.rate, comparison.net_rate)
            for peer in (OURS, LOCAL)
        ]
        ratio = comparison.shown(comparison.ratio(results, case, LOCAL, comparison.net_rate), 2)
        rows.append((case.name, *speeds, ratio))
    head = (
        "case", "cluster, records/s", f"{LOCAL}, records/s", "cluster, net of job start", f"{LOCAL}, net of job start",
        f"cluster / {LOCAL}, net",
    )  # fmt: skip
    return Grid(head, tuple(rows))


def verdicts(results: Results) -> Iterator[str]:
    for case in CASES:
        found = comparison.ratio(results, case, LOCAL, comparison.net_rate)
        if found is not None:
            holds = "holds" if found.median >= LEAST else "**does not hold**"
            yield f"{case.name}, cluster / {LOCAL}, net records/s: **{found.show()}**; at least {LEAST:.1f} {holds}."


def _figure(results: Results) -> Figure:
    panels = []
    for form in cases.FORMATS:
        here = [case for case in CASES if case.format == form]
        series = [
            Series(name, [comparison.point(results, case, peer, comparison.net_rate) for case in here])
            for name, peer in (("cluster of two workers", OURS), (LOCAL, LOCAL))
        ]
        panels.append(Panel(form.upper(), [case.query for case in here], series))
    title = "Records/s on a cluster and on one machine, net of job start: median, lowest and highest"
    return Figure("cluster", "bars", "records/s", title, panels, linear=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe is no reason to fold figures
    measure(Console(stderr=True), given.records, given.rounds).show(console)


if __name__ == "__main__":
    main()
