"""Claim: ten views over one source cost little more than one, beside stock Spark and Flink in the same run.

Each peer has one view, then ten, in a process of its own, over a topic that first does not grow, then by a thousand records a
second, then by fifty thousand. Each record says when it was made; when it could be read from a view's table is told by
the files on the disk (`readable.py`), so that looking costs the peer nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import machine, topics
from benchmarks.contest import some
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers import flink_views, forebay_views, spark_views
from benchmarks.peers.contract import Peer
from benchmarks.peers.environment import PeerError, last_words
from benchmarks.peers.live import PARTITIONS, VIEWS
from benchmarks.peers.session import Opening
from benchmarks.readable import LAYOUTS, Arrivals
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import ROOT, peer_environment, prepare, without_paths
from benchmarks.sessions import PeerSession

PEERS = (forebay_views.PEER, spark_views.PEER, flink_views.PEER)
OURS = forebay_views.PEER.name
LAYOUT_OF = {OURS: "delta", spark_views.PEER.name: "spark", flink_views.PEER.name: "flink"}
RATES = (1_000, 50_000)
IDLE = 0
SETTLE_S = 10.0  # after the first records, before idle is looked at
WARM_S = 10.0  # of each rate: workers start, code is compiled
LATE_S = 20.0  # for what has not arrived when a look ends
SELECTS = 10
TIMEOUT_S = 600.0
# What ten views may cost, by what one does.
AIMS = {"CPU": 1.5, "p50": 1.5, "memory": 1.3}
START_AIM = 1.5
IDLE_AIM, FURTHER_AIM = 1.0, 0.1  # % of a core: the source with its first view, and each further view
_MIB = 2**20
TITLE = "Ten views beside one"


@dataclass(frozen=True)
class Look:
    """One peer with so many views at one rate."""

    peer: str
    views: int
    rate: int
    cpu: float  # % of a core
    memory: float  # MiB
    processes: int
    busy: float = 0.0  # % of all cores, by everybody
    p50: float | None = None  # ms
    p99: float | None = None
    selects_s: float | None = None
    unread: int = 0  # records that could not be read LATE_S after the look


@dataclass(frozen=True)
class Start:
    """How long a session that has views already takes until they run, and until they have what is new."""

    views: int
    running_s: float
    caught_up_s: float


@dataclass(frozen=True)
class ViewResults:
    """Everything that was measured, a list of looks a round; and what failed."""

    rounds: Sequence[Sequence[Look]]
    starts: Sequence[Sequence[Start]]
    failures: Sequence[str]
    versions: Mapping[str, str]

    def of(self, peer: str, views: int, rate: int) -> list[Look | None]:
        """One a round; None where it failed."""
        wanted = (peer, views, rate)
        return [
            next((look for look in looks if (look.peer, look.views, look.rate) == wanted), None)
            for looks in self.rounds
        ]


FIGURES = {  # name to digits and what it is of a look
    "CPU": (1, lambda look: look.cpu),
    "p50": (0, lambda look: look.p50),
    "p99": (0, lambda look: look.p99),
    "memory": (0, lambda look: look.memory),
    "processes": (0, lambda look: float(look.processes)),
    "selects": (1, lambda look: look.selects_s),
    "busy": (0, lambda look: look.busy),
}
HEADS = {
    "CPU": "CPU, % of a core", "p50": "p50, ms", "p99": "p99, ms", "memory": "memory, MiB", "processes": "processes",
    "selects": f"{SELECTS} SELECTs, s", "busy": "the whole machine, % busy",
}  # fmt: skip


def record(number: int, stamp_ms: int) -> bytes:
    value = b'{"k":%d,"x":%d,"symbol":"AAPL","price":187.25,"quantity":100,"side":"buy","venue":"XNAS"}'
    return value % (number, stamp_ms)


def measure(
    console: Console,
    seconds: float = 30,
    rounds: int = 3,
    started_views: int = 50,
    peers: Sequence[Peer] = PEERS,
    rates: Sequence[int] = RATES,
) -> Section:
    from forebay.devstack import DevStack

    busy = machine.busy()
    done: list[list[Look]] = []
    starts: list[list[Start]] = []
    failures: list[str] = []
    versions: dict[str, str] = {}
    with DevStack() as stack:
        for number in range(rounds):
            done.append([])
            turned = [*peers[number % len(peers) :], *peers[: number % len(peers)]]
            for peer, views in [(peer, views) for peer in turned for views in (1, VIEWS)]:
                try:
                    for look in _looks(stack.bootstrap_servers, peer, views, rates, seconds, versions):
                        done[-1].append(look)
                        _tell(console, number, _words(look))
                except PeerError as error:
                    failures.append(f"{peer.name}, {views} views: “{error}”")
                    _tell(console, number, f"failed: {failures[-1]}")
            if any(peer.name == OURS for peer in peers) and started_views:
                starts.append([])
                for views in (1, started_views):
                    try:
                        starts[-1].append(_start(stack.bootstrap_servers, views))
                        _tell(console, number, f"{starts[-1][-1]}")
                    except PeerError as error:
                        failures.append(f"{OURS}, start with {views} views: “{error}”")
    found = ViewResults(done, starts, failures, versions)
    return section(found, [peer.name for peer in peers], rates, seconds, busy)


def _looks(
    servers: str, peer: Peer, views: int, rates: Sequence[int], seconds: float, versions: dict[str, str]
) -> Iterator[Look]:
    """Idle first, then at each rate, in one process of the peer's."""
    ready = prepare(peer)
    if isinstance(ready, str):
        raise PeerError(ready)
    session = PeerSession(peer, ready, Opening(servers, ""))
    topic = f"views-{peer.module.rsplit('.', 1)[-1]}-{views}-{time.time_ns()}"
    topics.create(servers, topic, PARTITIONS)
    made = 0
    try:
        started = session.tell({"do": "start", "topic": topic, "views": views}, TIMEOUT_S)
        versions[peer.name] = session.version
        folders = [Path(folder) for folder in started["folders"]]
        for rate in (IDLE, *rates):
            trickle = topics.Trickle(servers, topic, PARTITIONS, rate or RATES[0], record, made)
            trickle.start()
            try:
                yield _look(session, trickle, Look(peer.name, views, rate, 0, 0, 0), folders, seconds)
            finally:
                trickle.stop()
                made = trickle.made
    finally:
        session.close()
        topics.delete(servers, [topic])


def _look(
    session: PeerSession, trickle: topics.Trickle, look: Look, folders: Sequence[Path], seconds: float
) -> Look:
    time.sleep(WARM_S)
    if look.rate == IDLE:
        trickle.stop()
        _arrivals(trickle, look, folders, 0, math.inf)
        time.sleep(SETTLE_S)
    seen = session.tell({"do": "watch", "seconds": seconds}, TIMEOUT_S)
    cpu = 100 * seen["cpu_s"] / seen["wall_s"]
    memory = seen["memory"] / _MIB
    look = replace(look, cpu=cpu, memory=memory, processes=seen["processes"], busy=seen["busy"])
    if look.rate == IDLE:
        return look
    if look.rate == RATES[0] and look.peer != flink_views.PEER.name:  # where a SELECT is a job of its own
        question = {"do": "select", "times": SELECTS, "views": look.views}
        look = replace(look, selects_s=session.tell(question, TIMEOUT_S)["took_s"])
    ages, unread = _ages(trickle, look, folders, seen)
    p50, p99 = np.percentile(ages, [50, 99])
    return replace(look, p50=float(p50), p99=float(p99), unread=unread)


def _ages(
    trickle: topics.Trickle, look: Look, folders: Sequence[Path], seen: Mapping[str, Any]
) -> tuple[np.ndarray, int]:
    """The age of each record made in a look when it could be read, and how many never could: those are as old as now."""
    arrivals, wanted = _arrivals(trickle, look, folders, seen["began_ms"], seen["ended_ms"])
    arrived = np.concatenate(
        [part for each in arrivals for part in each.numbers] or [np.array([], dtype=int)]
    )
    if not len(arrived):
        raise PeerError(
            f"none of the {len(wanted):,} records of a look could be read {LATE_S:.0f} s after it"
        )
    if len(np.unique(arrived)) != len(arrived) or len(np.setdiff1d(arrived, wanted)):
        raise PeerError("some records are there twice, or in a view that they do not belong to")
    ages = [part for each in arrivals for part in each.ages_ms]
    unread = len(wanted) - len(arrived)
    late = np.full(unread, time.time() * 1000 - seen["ended_ms"])
    return np.concatenate([*ages, late]), unread


def _arrivals(
    trickle: topics.Trickle, look: Look, folders: Sequence[Path], begin_ms: float, end_ms: float
) -> tuple[list[Arrivals], list[int]]:
    """What each view has of the records of that time, and those that all views should have; waits for late ones."""
    wanted = [n for n in trickle.between(begin_ms, end_ms) if n % VIEWS < look.views]
    layout = LAYOUTS[LAYOUT_OF[look.peer]]
    arrivals = [Arrivals(folder, layout, begin_ms, end_ms) for folder in folders]
    deadline = time.monotonic() + LATE_S
    while sum(each.look() for each in arrivals) < len(wanted) and time.monotonic() < deadline:
        time.sleep(0.5)
    return arrivals, wanted


def _start(servers: str, views: int) -> Start:
    """A home with so many views, made by one process and opened by another; something new is there to read."""
    topic = f"starts-{views}-{time.time_ns()}"
    topics.create(servers, topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as home:
        for what in ("prepare", "start"):
            trickle = topics.Trickle(servers, topic, PARTITIONS, RATES[0], record)
            trickle.start()
            time.sleep(1)
            trickle.stop()
            command = ["-m", "benchmarks.peers.forebay_starts", what, home, servers, topic, str(views)]
            try:
                done = subprocess.run(
                    [sys.executable, *command],
                    cwd=ROOT,
                    env=peer_environment(),
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                )
            except subprocess.TimeoutExpired:
                raise PeerError(f"no answer after {TIMEOUT_S:.0f} s") from None
            if done.returncode:
                raise PeerError(without_paths(last_words(done.stderr)))
    return Start(views, **json.loads(done.stdout.splitlines()[-1]))


def _words(look: Look) -> str:
    fresh = f", p50 {look.p50:.0f} ms, p99 {look.p99:.0f} ms" if look.p50 and look.p99 else ""
    fresh += f", {look.unread:,} not read" if look.unread else ""
    fresh += f", {SELECTS} SELECTs {look.selects_s:.1f} s" if look.selects_s else ""
    cost = f"{look.cpu:.1f} % of a core, {look.memory:,.0f} MiB in {look.processes} processes"
    return f"{look.peer}, {look.views} views, {rate_name(look.rate)}: {cost}{fresh}"


def _tell(console: Console, number: int, text: str) -> None:
    console.print(f"round {number + 1}, {text}", markup=False, highlight=False, soft_wrap=True)


def rate_name(rate: int) -> str:
    return f"{rate:,} records/s" if rate else "idle"


def section(
    found: ViewResults, peers: Sequence[str], rates: Sequence[int], seconds: float, busy: str
) -> Section:
    intro = (
        f"Views SELECT k, x FROM s WHERE k % {VIEWS} = i over one topic of {PARTITIONS} partitions, JSON of about 90 bytes: one "
        f"view (i = 0), and {VIEWS}. Stock Spark: a query a view, Parquet sink, as fast as it goes. Flink SQL: a statement set "
        f"with an INSERT a view, filesystem connector, Parquet, checkpoints every {flink_views.CHECKPOINT}. {seconds:.0f} s a "
        f"look after {WARM_S:.0f} s of warm-up, {len(found.rounds)} rounds in turn; {busy}. CPU time and memory (PSS) of the "
        "peer's whole process tree, without broker and producer. Freshness: age of a record when the commit with its file is "
        "on the disk, so that a reader finds it; every record is checked to be there once. Medians, lowest and highest; "
        "ratios are taken within a round."
    )
    grids = [rate_grid(found, peers, rate) for rate in (IDLE, *rates)]
    if any(found.starts):
        grids.append(start_grid(found.starts))
    versions = "; ".join(f"{name} {text}" for name, text in found.versions.items())
    notes = (
        *verdicts(found, rates),
        *beside(found, peers, rates),
        f"Versions: {versions}.",
        *unread(found),
        *found.failures,
    )
    return Section(TITLE, intro, tuple(grids), notes, (_figure(found, peers, (IDLE, *rates)),))


def spread(looks: Sequence[Look | None], figure: str) -> Spread | None:
    values = [FIGURES[figure][1](look) for look in looks if look]
    return Spread.of([value for value in values if value is not None])


def ratio(
    found: ViewResults, rate: int, figure: str, of: tuple[str, int], by: tuple[str, int]
) -> Spread | None:
    """One peer with so many views by another, or by itself with fewer, in each round that has both."""
    take = FIGURES[figure][1]
    pairs = zip(found.of(*of, rate), found.of(*by, rate), strict=True)
    values = [(take(a), take(b)) for a, b in pairs if a and b]
    return Spread.of([a / b for a, b in values if a is not None and b])


def ten_by_one(found: ViewResults, peer: str, rate: int, figure: str) -> Spread | None:
    return ratio(found, rate, figure, (peer, VIEWS), (peer, 1))


def rate_grid(found: ViewResults, peers: Sequence[str], rate: int) -> Grid:
    figures = [name for name in FIGURES if rate or name in ("CPU", "memory", "processes", "busy")]
    if rate != RATES[0]:
        figures = [name for name in figures if name != "selects"]
    rows = []
    for peer in peers:
        for views in (1, VIEWS):
            cells = [(spread(found.of(peer, views, rate), name), FIGURES[name][0]) for name in figures]
            rows.append((peer, str(views), *(cell.show(digits) if cell else "–" for cell, digits in cells)))
        ratios = [ten_by_one(found, peer, rate, name) if name != "busy" else None for name in figures]
        rows.append((peer, f"{VIEWS} / 1", *(cell.show() if cell else "–" for cell in ratios)))
    return Grid(
        ("peer", "views", *(HEADS[name] for name in figures)), tuple(rows), title=rate_name(rate).capitalize()
    )


def start_grid(starts: Sequence[Sequence[Start]]) -> Grid:
    rows = []
    for views in sorted({start.views for each in starts for start in each}):
        here = [start for each in starts for start in each if start.views == views]
        spreads = (Spread.of([s.running_s for s in here]), Spread.of([s.caught_up_s for s in here]))
        rows.append((str(views), *(cell.show() if cell else "–" for cell in spreads)))
    return Grid(
        ("views", "until they run, s", "until they have what is new, s"),
        tuple(rows),
        title="Start of a session",
    )


def verdicts(found: ViewResults, rates: Sequence[int]) -> Iterator[str]:
    """The aims, of our own views alone."""
    for rate in rates:
        for name, most in AIMS.items():
            cost = ten_by_one(found, OURS, rate, name)
            if cost:
                holds = "holds" if cost.median <= most else "**does not hold**"
                what = f"{rate_name(rate)}, {OURS}, {VIEWS} views / one, {name}"
                yield f"{what}: **{cost.show()}**; at most {most} {holds}."
    yield from _idle_verdicts(found)
    for what in ("running_s", "caught_up_s"):
        pairs = [(one, many) for one, many in (each for each in found.starts if len(each) == 2)]
        cost = Spread.of([getattr(many, what) / getattr(one, what) for one, many in pairs])
        if cost:
            holds = "holds" if cost.median <= START_AIM else "**does not hold**"
            until = "until they run" if what == "running_s" else "until they have what is new"
            many = pairs[0][1].views
            yield f"Start of a session {until}, {many} views / one: **{cost.show()}**; at most {START_AIM} {holds}."


def beside(found: ViewResults, peers: Sequence[str], rates: Sequence[int]) -> Iterator[str]:
    """Ten of our views by ten of another's."""
    for rate in (IDLE, *rates):
        for peer in (peer for peer in peers if peer != OURS):
            costs = {name: ratio(found, rate, name, (OURS, VIEWS), (peer, VIEWS)) for name in AIMS}
            shown = ", ".join(f"{name} {cost.show()}" for name, cost in costs.items() if cost)
            if shown:
                yield f"{rate_name(rate)}, {VIEWS} views, {OURS} / {peer}: {shown}."


def _idle_verdicts(found: ViewResults) -> Iterator[str]:
    pairs = list(zip(found.of(OURS, 1, IDLE), found.of(OURS, VIEWS, IDLE), strict=True))
    first = Spread.of([one.cpu for one, _ in pairs if one])
    further = Spread.of([(ten.cpu - one.cpu) / (VIEWS - 1) for one, ten in pairs if one and ten])
    named = ((first, "a source with one view", IDLE_AIM), (further, "each further view", FURTHER_AIM))
    for cost, what, most in named:
        if cost:
            holds = "holds" if cost.median <= most else "**does not hold**"
            yield f"Idle, {OURS}, {what}: **{cost.show()}** % of a core; at most {most} {holds}."


def unread(found: ViewResults) -> Iterator[str]:
    for look in (look for looks in found.rounds for look in looks if look.unread):
        yield (
            f"{look.peer}, {look.views} views, {rate_name(look.rate)}: {look.unread:,} records could not be read {LATE_S:.0f} s "
            "after the look; they count as if they could then."
        )


def _figure(found: ViewResults, peers: Sequence[str], rates: Sequence[int]) -> Figure:
    panels = []
    for name in AIMS:
        here = [rate for rate in rates if rate or name != "p50"]
        series = []
        for peer in peers:
            cells = [ten_by_one(found, peer, rate, name) for rate in here]
            values = [[cell.median, cell.low, cell.high] if cell else None for cell in cells]
            series.append(Series(peer, values))
        panels.append(Panel(f"{name}, {VIEWS} views / one", [rate_name(rate) for rate in here], series))
    title = f"What {VIEWS} views over one source cost by what one does: median, lowest and highest"
    return Figure("views", "bars", "", title, panels, linear=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.views", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--started-views", type=int, default=50, help="0: how long a session takes to start is left out"
    )
    parser.add_argument("--rates", default=",".join(map(str, RATES)), help="some of %(default)s")
    parser.add_argument("--peers", default="", help="peers with one of these words: forebay,flink")
    given = parser.parse_args()
    rates = [rate for rate in RATES if str(rate) in given.rates.split(",")]
    peers = some(PEERS, given.peers)
    found = measure(Console(stderr=True), given.seconds, given.rounds, given.started_views, peers, rates)
    found.show(Console(width=None if sys.stdout.isatty() else 200))


if __name__ == "__main__":
    main()
