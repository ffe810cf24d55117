"""Claim: Forebay beside its peers, by format, query, size of record and number of partitions.

Every peer answers the same question about the same topics on the same broker. Processes, JVMs and imports are
up and the question has been asked on a small topic before the clock starts; starting the job is inside the
clock. The same question about an almost empty topic tells what the start took, and is subtracted for "net".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from benchmarks import cases, comparison, machine
from benchmarks.cases import Case
from benchmarks.contest import OURS, PEERS, SHARES, Contest, Results, some
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers.contract import Peer
from benchmarks.peers.session import Opening
from benchmarks.records import values
from benchmarks.report import Section
from forebay.devstack import DevStack

TITLE = "Forebay beside its peers"
TIMEOUT_S = 180.0


def measure(
    console: Console, chosen: Sequence[Case], peers: Sequence[Peer], records: int, rounds: int
) -> Section:
    busy = machine.busy()
    with DevStack() as stack, Contest(console, stack.bootstrap_servers, peers, TIMEOUT_S) as contest:
        results = contest.run(chosen, records, rounds)
    return section(results, [peer.name for peer in peers], records, busy)


def section(results: Results, peers: Sequence[str], records: int, busy: str) -> Section:
    opening = Opening("", "")
    sizes = ", ".join(f"{f} {size} {_bytes(f, size)} B" for size in cases.SIZES for f in cases.FORMATS)
    slow = sorted({peer for peer, _ in SHARES})
    intro = (
        f"{records:,} records a topic, a fifth of that for large ones; {', '.join(slow)} gets fewer, so that a "
        f"round does not wait for it (the column says how many; figures are per record). Mean sizes: {sizes}. "
        f"Avro is bare datums. {opening.master}, JVM heap {opening.heap}, micro-batches of at most "
        f"{opening.batch_records:,}; {busy}. "
        + "; ".join(f"{query}: {text}" for query, text in cases.QUESTIONS.items())
        + ". Every answer is compared with the right one; a wrong one is a failure. Figures are medians over the "
        "rounds with the lowest and highest; – where in some round the start of the job left too little to "
        "divide by; CPU time is that of the peer's whole process tree, the broker not "
        "counted. confluent-kafka consume() decodes nothing and is the floor of what reading costs in Python."
    )
    grids = [
        comparison.overview(results, peers, comparison.rate).titled(
            f"Records/s, job start included, {OURS} / peer: above 1 {OURS} is faster"
        ),
        comparison.overview(results, peers, comparison.net_rate).titled(
            f"Records/s net of job start, {OURS} / peer: above 1 {OURS} is faster"
        ),
        comparison.overview(results, peers, comparison.net_cpu).titled(
            f"CPU time net of job start, {OURS} / peer: below 1 {OURS} needs less"
        ),
    ]
    grids += [comparison.case_grid(results, case, peers).titled(case.name) for case in results.measured]
    versions = "; ".join(f"{name} {text}" for name, text in results.versions.items())
    notes = (f"Versions: {versions}.", *comparison.failures(results))
    return Section(TITLE, intro, tuple(grids), notes, figures(results, peers))


def _bytes(form: str, size: str, sample: int = 2_000) -> int:
    return round(sum(map(len, values(form, size, sample))) / sample)


def figures(results: Results, peers: Sequence[str]) -> tuple[Figure, ...]:
    return (
        _figure("throughput", results, peers, comparison.rate, "records/s, job start included"),
        _figure("throughput-net", results, peers, comparison.net_rate, "records/s, net of job start"),
        _figure("cpu", results, peers, comparison.net_cpu, "CPU s per million records, net of job start"),
    )


def _figure(
    name: str, results: Results, peers: Sequence[str], figure: comparison.Figure, label: str
) -> Figure:
    panels = []
    for form in cases.FORMATS:
        here = [case for case in results.measured if case.format == form]
        plain = Case(form, "count")
        views = (
            ("query", [Case(form, query) for query in cases.QUERIES], lambda c: c.query),
            ("size of record, count", [Case(form, "count", s) for s in cases.SIZES], lambda c: c.size),
            ("partitions, count", [Case(form, "count", partitions=n) for n in cases.PARTITIONS],
             lambda c: str(c.partitions)),
        )  # fmt: skip
        for what, wanted, naming in views:
            found = [case for case in wanted if case in here]
            if len(found) > 1 or plain in found:
                series = [
                    Series(p, [comparison.point(results, case, p, figure) for case in found]) for p in peers
                ]
                panels.append(Panel(f"{form.upper()}, by {what}", [naming(c) for c in found], series))
    return Figure(
        name, "bars", label, f"{label}: median, lowest and highest; × no figure, see the tables", panels
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help='cases with these words: "json windows", "avro 16"')
    parser.add_argument("--peers", default="", help="peers with one of these words: forebay,flink")
    parser.add_argument("--full", action="store_true", help="the whole cross product")
    given = parser.parse_args()
    chosen = cases.matching(cases.everything() if given.full else cases.one_factor_at_a_time(), given.only)
    console = Console(stderr=True)
    measure(console, chosen, some(PEERS, given.peers), given.records, given.rounds).show(Console())


if __name__ == "__main__":
    main()
