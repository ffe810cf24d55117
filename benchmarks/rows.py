"""Claim: all rows of a topic into a table, beside stock Spark and Flink writing Parquet with the same columns.

Nothing is added up and nothing left out, so this is what a record costs on its way from the topic into a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console

from benchmarks import cases, comparison, machine
from benchmarks.cases import Case
from benchmarks.contest import OURS, Results, some
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers import spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.report import Section
from benchmarks.steady import PEERS, by_format

WARMUP_RECORDS = 1_000_000
# By how much we must be ahead of a peer, in records/s net of job start; of those not here, at all.
AHEAD = {spark_sql.NAME: 4.0}
CASES = tuple(Case(form, "rows") for form in cases.FORMATS)
TITLE = "All rows into a table"


def measure(
    console: Console, records: int = 5_000_000, rounds: int = 3, peers: Sequence[Peer] = PEERS
) -> Section:
    busy = machine.busy()
    results = by_format(console, peers, ["rows"], records, rounds, min(records, WARMUP_RECORDS))
    return section(results, [peer.name for peer in peers], records, busy)


def section(results: Results, peers: Sequence[str], records: int, busy: str) -> Section:
    intro = (
        f"{records:,} medium records of seven columns in 4 partitions, as JSON and as Avro; {results.rounds} rounds in "
        f"turn; {busy}. Forebay: CREATE MATERIALIZED VIEW v AS SELECT * FROM s, a Delta table. Stock Spark: its Kafka "
        "source, from_json or from_avro, its Parquet sink. Flink SQL: INSERT INTO a table of its filesystem connector, "
        "Parquet. Each as it compresses by default. A count and a sum are read back from the files and checked, inside the "
        "clock. Net of job start is what counts; CPU s per million are CPU µs a record."
    )
    grids = tuple(comparison.case_grid(results, case, peers).titled(case.name) for case in CASES)
    versions = "; ".join(f"{name} {text}" for name, text in results.versions.items())
    notes = (*verdicts(results, peers), f"Versions: {versions}.", *comparison.failures(results))
    return Section(TITLE, intro, grids, notes, (_figure(results, peers),))


def verdicts(results: Results, peers: Sequence[str]) -> Iterator[str]:
    for case in CASES:
        for peer in peers:
            speed = comparison.ratio(results, case, peer, comparison.net_rate)
            cost = comparison.ratio(results, case, peer, comparison.net_cpu)
            if peer == OURS or speed is None:
                continue
            least = AHEAD.get(peer, 1.0)
            holds = "holds" if speed.median >= least else "**does not hold**"
            paid = f", for {cost.show()} of its CPU time" if cost else ""
            yield (
                f"{case.format.upper()}, {OURS} / {peer}, net records/s: **{speed.show()}**{paid}; at least {least:.1f} {holds}."
            )


def _figure(results: Results, peers: Sequence[str]) -> Figure:
    panels = []
    views = (("records/s", comparison.net_rate), ("CPU µs a record", comparison.net_cpu))
    for what, figure in views:
        series = [
            Series(peer, [comparison.point(results, case, peer, figure) for case in CASES]) for peer in peers
        ]
        panels.append(Panel(what, [case.format.upper() for case in CASES], series))
    title = "All rows into a table, net of job start: median, lowest and highest"
    return Figure("rows", "bars", "", title, panels, linear=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="", help="peers with one of these words: forebay,flink")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe is no reason to fold figures
    measure(Console(stderr=True), given.records, given.rounds, some(PEERS, given.peers)).show(console)


if __name__ == "__main__":
    main()
