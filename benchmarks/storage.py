"""Claim: with its tables in an object store, Forebay is nearly as fast as with tables on a local disk.

The same pipelines, with nothing changed but where tables are. The store is a real S3 server on loopback, which takes its part of the
two cores; the files that it keeps are on the same disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from scripts.s3_server import s3_server

from benchmarks import cases, comparison, machine
from benchmarks.cases import Case
from benchmarks.contest import OURS, Contest, Results
from benchmarks.peers import forebay_sql
from benchmarks.peers.contract import Peer, Prepared
from benchmarks.report import Grid, Section
from forebay.devstack import DevStack

DISK = "local disk"
WARMUP_RECORDS = 500_000
TIMEOUT_S = 600.0
CASES = tuple(Case(form, query) for form in cases.FORMATS for query in ("rows", "count"))
TITLE = "Tables on S3 beside tables on a local disk"


def measure(console: Console, records: int = 5_000_000, rounds: int = 3) -> Section:
    busy = machine.busy()
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder)) as s3, DevStack() as stack:
        os.environ.update(s3.environment)  # for the peers, which are processes of their own
        peers = [_forebay(OURS, {"storage": s3.url("bench")}), _forebay(DISK, {})]
        warmup = min(records, WARMUP_RECORDS)
        with Contest(console, stack.bootstrap_servers, peers, TIMEOUT_S, warmup) as contest:
            results = contest.run(CASES, records, rounds)
    return section(results, records, busy)


def _forebay(name: str, own: dict[str, object]) -> Peer:
    return Peer(name, forebay_sql.PEER.module, lambda _: Prepared(sys.executable, own))


def section(results: Results, records: int, busy: str) -> Section:
    intro = (
        f"{records:,} medium records in 4 partitions, as JSON and as Avro; {results.rounds} rounds in turn; {busy}. Forebay "
        "twice: with tables on an S3 server (versitygw, on this machine) and in its home. rows: all rows into a Delta table; "
        "count: a count and a sum. Every answer is checked. Net of job start is what counts."
    )
    return Section(TITLE, intro, (grid(results),), (*verdicts(results), *comparison.failures(results)))


def grid(results: Results) -> Grid:
    rows = []
    for case in CASES:
        speeds = [
            comparison.shown(comparison.spread(results.of(case, peer), comparison.net_rate), 0)
            for peer in (OURS, DISK)
        ]
        ratio = comparison.shown(comparison.ratio(results, case, DISK, comparison.net_rate), 2)
        rows.append((case.name, *speeds, ratio))
    return Grid(("case", "S3, records/s", f"{DISK}, records/s", f"S3 / {DISK}"), tuple(rows))


def verdicts(results: Results) -> Iterator[str]:
    for case in CASES:
        found = comparison.ratio(results, case, DISK, comparison.net_rate)
        if found is not None:
            yield f"{case.name}, S3 / {DISK}, net records/s: **{found.show()}**."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe is no reason to fold figures
    measure(Console(stderr=True), given.records, given.rounds).show(console)


if __name__ == "__main__":
    main()
