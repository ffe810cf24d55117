"""Every claim, one after the other; what a full run measured becomes RESULTS.md."""

from __future__ import annotations

import argparse
import pickle
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import (
    blackboard,
    cases,
    cluster,
    constant,
    contest,
    dashboard,
    decoding,
    flow,
    formats,
    freshness,
    grid,
    groups,
    lateness,
    letters,
    machine,
    memory,
    pool,
    rebalance,
    report,
    rows,
    soak,
    steady,
    storage,
    throughput,
    views,
)
from benchmarks.figures import draw
from benchmarks.peers.environment import PeerError
from benchmarks.runner import ROOT, WORK, without_paths

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
QUICK_RESULTS = WORK / "RESULTS-quick.md"
SECTIONS = WORK / "sections"  # a claim's section is kept here as soon as it is there
CLAIMS = (
    "grid", "steady", "rows", "cluster", "storage", "views", "constant", "throughput", "freshness", "flow", "memory", "decoding", "formats", "letters",
    "groups", "lateness", "rebalance", "pool", "blackboard", "dashboard",
)  # fmt: skip

ALONE = ("soak",)  # takes hours: only who names it gets it

# name, help, value of a quick run, value of a full one
NUMBERS = (
    ("records", "records a topic of the grid and of the throughput claim", 100_000, 1_000_000),
    ("rounds", "rounds of the grid and of the claim about formats", 1, 3),
    ("steady-records", "records of the steady-state claim", 300_000, 20_000_000),
    ("steady-rounds", "rounds of the steady-state claim", 1, 2),
    ("rows-records", "records of the claim about all rows", 200_000, 5_000_000),
    ("rows-rounds", "rounds of the claim about all rows", 1, 3),
    ("cluster-records", "records of the claim about a cluster", 300_000, 5_000_000),
    ("cluster-rounds", "rounds of the claim about a cluster", 1, 3),
    ("storage-records", "records of the claim about object storage", 300_000, 5_000_000),
    ("storage-rounds", "rounds of the claim about object storage", 1, 3),
    ("views-seconds", "seconds of each look of the claim about ten views", 5, 30),
    ("views-rounds", "rounds of the claim about ten views", 1, 3),
    ("started-views", "views of a session whose start is timed", 5, 50),
    ("constant-records", "records of the constant-cost claim", 600_000, 100_000_000),
    ("throughput-rounds", "rounds of the throughput claim", 1, 3),
    ("freshness-seconds", "seconds a round of the freshness claim", 5, 30),
    ("burst-seconds", "seconds of a burst of ten times the rate", 8, 60),
    ("letters-rounds", "rounds of the claim about bad records", 1, 5),
    ("groups", "groups of the largest table of the claim about groups", 100_000, 10_000_000),
    ("lateness-seconds", "seconds of the claim about late rows", 30, 180),
    ("groups-batches", "batches of the claim about groups", 20, 200),
    ("rebalance-rounds", "rounds of the claim about rebalances", 1, 3),
    ("memory-records", "records of the memory claim", 300_000, 10_000_000),
    ("soak-seconds", "seconds of the soak", 60, 7_200),
    ("soak-rate", "records a second of the soak", 5_000, 20_000),
    ("soak-kill-seconds", "seconds between two kills of a worker in the soak", 20, 600),
    ("pool-records", "the most records of a case of the pool claim", 50_000, 500_000),
    ("pool-rounds", "rounds of the pool claim", 1, 3),
    ("artifacts", "artifacts of the blackboard claim", 5_000, 50_000),
    ("artifacts-rounds", "rounds of the blackboard claim", 1, 3),
    ("dashboard-records", "records of the claim about the dashboard", 500_000, 10_000_000),
    ("dashboard-rounds", "blocks of four readings of the claim about the dashboard", 1, 5),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and few: RESULTS.md stays as it is")
    parser.add_argument("--full", action="store_true", help="the whole cross product in the grid")
    parser.add_argument(
        "--claims", default=",".join(CLAIMS), help=f"some of %(default)s; or {', '.join(ALONE)}"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="put these claims into RESULTS.md, in place of what it has of them",
    )
    parser.add_argument("--only", default="", help='cases of the grid with these words: "json windows"')
    parser.add_argument(
        "--peers",
        default="",
        help="peers of the grid, of all rows and of ten views with one of these words: forebay,flink",
    )
    for name, text, quick, full in NUMBERS:
        parser.add_argument(f"--{name}", type=int, help=f"{text} ({full:,}; quick: {quick:,})")
    given = parser.parse_args()
    for name, _, quick, full in NUMBERS:
        attribute = name.replace("-", "_")
        if getattr(given, attribute) is None:
            setattr(given, attribute, quick if given.quick else full)
    return given


def claims(given: argparse.Namespace, words: Console) -> dict[str, Callable[[], report.Section]]:
    every = cases.everything() if given.full else cases.few() if given.quick else cases.one_factor_at_a_time()
    chosen, peers = cases.matching(every, given.only), contest.some(contest.PEERS, given.peers)
    topic_records = max(200_000, given.constant_records // 10)
    return {
        "grid": lambda: grid.measure(words, chosen, peers, given.records, given.rounds),
        "steady": lambda: steady.measure(words, given.steady_records, given.steady_rounds),
        "rows": lambda: rows.measure(
            words, given.rows_records, given.rows_rounds, contest.some(rows.PEERS, given.peers)
        ),
        "views": lambda: views.measure(
            words,
            given.views_seconds,
            given.views_rounds,
            given.started_views,
            contest.some(views.PEERS, given.peers),
        ),
        "cluster": lambda: cluster.measure(words, given.cluster_records, given.cluster_rounds),
        "storage": lambda: storage.measure(words, given.storage_records, given.storage_rounds),
        "constant": lambda: constant.measure(words, given.constant_records, topic_records),
        "throughput": lambda: throughput.measure(words, given.records, given.throughput_rounds),
        "rebalance": lambda: rebalance.measure(words, given.rebalance_rounds),
        "freshness": lambda: freshness.measure(words, given.freshness_seconds, given.throughput_rounds),
        "flow": lambda: flow.measure(words, given.burst_seconds, given.throughput_rounds),
        "memory": lambda: memory.measure(words, given.memory_records),
        "decoding": lambda: decoding.measure(words, given.records),
        # More records than elsewhere: a run of one million takes half a second, which measures noise.
        "formats": lambda: formats.measure(words, 4 * given.records, given.rounds),
        "letters": lambda: letters.measure(words, 5 * given.records, given.letters_rounds),
        "groups": lambda: groups.measure(words, given.groups, given.groups_batches),
        "lateness": lambda: lateness.measure(words, given.lateness_seconds),
        "soak": lambda: soak.measure(words, given.soak_seconds, given.soak_rate, given.soak_kill_seconds),
        "pool": lambda: pool.measure(words, given.pool_records, given.pool_rounds),
        "blackboard": lambda: blackboard.measure(words, given.artifacts, given.artifacts_rounds),
        "dashboard": lambda: dashboard.measure(words, given.dashboard_records, given.dashboard_rounds),
    }


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that peers and broker are ended too
    words = Console(stderr=True)
    console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe is no reason to fold figures
    wanted = [name for name in (*CLAIMS, *ALONE) if name in given.claims.split(",")]
    SECTIONS.mkdir(parents=True, exist_ok=True)
    sections = []
    for name, claim in claims(given, words).items():
        if name not in wanted:
            continue
        began = time.monotonic()
        words.rule(name)
        try:
            section = claim()
        except Exception as error:  # hours of other measurements must not go with it
            words.print_exception()
            text = without_paths(f"{type(error).__name__}: {error}")
            section = report.Section(name.capitalize(), f"This claim could not be measured: {text}", (), ())
        words.print(f"{name}: {time.monotonic() - began:.0f} s")
        (SECTIONS / f"{name}.pickle").write_bytes(pickle.dumps(section))
        section.show(console)
        sections.append(section)
    whole = wanted == list(CLAIMS) and not (given.quick or given.only or given.peers)
    write(RESULTS if whole or given.publish else QUICK_RESULTS, given, sections, words)


def command(given: argparse.Namespace) -> str:
    """What to type to measure the same again."""
    words = [f"--{flag}" for flag in ("quick", "full", "publish") if getattr(given, flag)]
    words += [f"--claims {given.claims}"] if given.claims != ",".join(CLAIMS) else []
    words += [f"--{name} '{value}'" for name in ("only", "peers") if (value := getattr(given, name))]
    words += [
        f"--{name} {value}"
        for name, _, quick, full in NUMBERS
        if (value := getattr(given, name.replace("-", "_"))) != (quick if given.quick else full)
    ]
    return " ".join(["python -m benchmarks", *words])


def write(target: Path, given: argparse.Namespace, sections: list[report.Section], words: Console) -> None:
    for figure in [figure for section in sections for figure in section.figures]:
        try:
            draw(figure, target.parent / report.PLOTS, WORK)
        except PeerError as error:  # without its plot a table is still a result
            words.print(without_paths(str(error)), markup=False)
    origin = f"`{command(given)}`, {machine.describe()}"
    before = target.read_text(encoding="utf-8") if given.publish and target.exists() else ""
    report.write(target, report.document(origin, sections, before))
    words.print(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
