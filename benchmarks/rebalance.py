"""Claim: a commit takes less than 100 ms, and records flow again within 5 s of a rebalance or a broker's restart.

Two processes share a group, and a producer writes to it all the time. When a record is in a table is when the version that
brought it was committed. How long a partition stood still is the longest time in which none of its records came.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from benchmarks import machine, topics
from benchmarks.report import Grid, Section, Spread
from forebay import column_types as types
from forebay.connectors.contract import SourceCheckpoint, SourceConfig
from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource
from forebay.kafka.offsets import KafkaPosition
from forebay.kafka.share import ShareFolder

TITLE = "Commits, rebalances and a broker's restart"
RATE, PARTITIONS = 400, 4
COMMITS = 200
COMMIT_AIM_MS, FLOW_AIM_S = 100, 5.0
SESSION_S = 6.0  # the least that a broker allows by default
SHORT_SESSION_S = (
    3.0  # for brokers whose group.min.session.timeout.ms allows it, as that of the development stack does
)
WATCH_S = 12.0  # so long after an event its effect is looked for
SETTLE_S = 4.0
LOOK_S = 0.1
START_S = 120.0
SCRIPT = """
CREATE SOURCE s (id BIGINT NOT NULL) FROM KAFKA (brokers = '{servers}', topic = 'shared', group_id = 'shared',
    group_mode = 'shared', session_timeout_ms = {session_ms}, startup_mode = 'latest') FORMAT JSON;
CREATE MATERIALIZED VIEW plain AS SELECT id FROM s;
"""


@dataclass(frozen=True)
class Ending:
    """How a process of the group ends. Of one that is killed or frozen the group learns when its session is over."""

    label: str
    how: signal.Signals
    session_s: float
    silent: bool = True


ENDINGS = {
    "leave": Ending("a process ends", signal.SIGTERM, SESSION_S, silent=False),
    "kill": Ending("a process is killed", signal.SIGKILL, SESSION_S),
    "frozen": Ending("a process is frozen", signal.SIGSTOP, SESSION_S),
    "kill-3": Ending("a process is killed", signal.SIGKILL, SHORT_SESSION_S),
    "frozen-3": Ending("a process is frozen", signal.SIGSTOP, SHORT_SESSION_S),
}
JOIN, BROKER = "join", "broker"


class Member:
    """`forebay run` on a home of its own."""

    def __init__(self, script: Path, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        with (home / "log").open("ab") as log:
            command = [sys.executable, "-m", "forebay", "run", str(script), "--home", str(home), "--master", "local[2]"]  # fmt: skip
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def await_partitions(self, count: int) -> None:
        share, deadline = (
            ShareFolder(self.home / "sources" / "s" / "read" / "group"),
            time.monotonic() + START_S,
        )
        while len(share.assignment().partitions) != count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no {count} partitions: {(self.home / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        if self.process.poll() is None:
            if how is signal.SIGTERM:
                self.process.send_signal(how)
            else:
                os.killpg(self.process.pid, how)

    def gone(self) -> None:
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


@contextmanager
def running(script: Path, root: Path) -> Iterator[list[Member]]:
    members = [Member(script, root / "one")]
    try:
        yield members
    finally:
        for member in members:
            member.end(signal.SIGTERM)
        for member in members:
            member.gone()


class Arrivals(threading.Thread):
    """Looks which versions the tables below a folder get: of old ones nothing is left after a while.

    `times` are, by partition, when a version brought records of it, in seconds since the epoch.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.times: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._root = root
        self._known: set[Path] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            for version in sorted(self._root.glob("*/views/plain/table/_delta_log/*.json")):
                if version not in self._known:
                    self._known.add(version)
                    self._note(version)

    def _note(self, version: Path) -> None:
        table = version.parent.parent
        with suppress(FileNotFoundError):
            actions = [json.loads(line) for line in version.read_text().splitlines()]
            at = next((each["commitInfo"]["timestamp"] / 1000 for each in actions if "commitInfo" in each), 0)
            for each in actions:
                if "add" in each and each["add"]["dataChange"]:
                    ids = pq.read_table(table / each["add"]["path"], columns=["id"])["id"].to_numpy()
                    for number in np.unique(ids % PARTITIONS):
                        self.times[number].append(at)

    def stop(self) -> list[list[float]]:
        self._over.set()
        self.join()
        return [sorted(each) for each in self.times]


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    inside = [at for at in times if begin < at < end]
    return max((after - before for before, after in pairwise([begin, *inside, end])), default=end - begin)


def first_after(times: Sequence[float], begin: float) -> float:
    return next((at for at in times if at > begin), begin + 60) - begin


def net_of(session_s: float, times: Sequence[float]) -> list[float]:
    return [max(0.0, each - session_s) for each in times]


def _script(root: Path, servers: str, session_s: float) -> Path:
    path = root / f"session-{session_s:.0f}.sql"
    path.write_text(SCRIPT.format(servers=servers, session_ms=round(session_s * 1000)))
    return path


def rebalances(console: Console, stack: DevStack, rounds: int) -> dict[str, list[float]]:
    """For each event: how long the partition stood still that stood still longest."""
    events: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="forebay-rebalance-") as folder:
        root = Path(folder)
        scripts = {
            session_s: _script(root, stack.bootstrap_servers, session_s)
            for session_s in (SESSION_S, SHORT_SESSION_S)
        }
        topics.create(stack.bootstrap_servers, "shared", PARTITIONS)
        trickle = topics.Trickle(
            stack.bootstrap_servers, "shared", PARTITIONS, RATE, lambda n, _: b'{"id":%d}' % n
        )
        trickle.start()
        arrivals = Arrivals(root)
        arrivals.start()
        try:
            with running(scripts[SESSION_S], root) as members:
                members[0].await_partitions(PARTITIONS)
                for number in range(rounds):
                    for what, ending in ENDINGS.items():
                        time.sleep(SETTLE_S)
                        member = Member(scripts[ending.session_s], root / f"other-{number}-{what}")
                        members.append(member)
                        member.await_partitions(PARTITIONS // 2)
                        events.append((JOIN, time.time() - SETTLE_S))
                        time.sleep(WATCH_S)
                        events.append((what, time.time()))
                        member.end(ending.how)
                        time.sleep(WATCH_S + SESSION_S)
                        if ending.how is signal.SIGSTOP:
                            member.end(signal.SIGKILL)  # it comes back to nobody
                        console.print(f"round {number + 1}: joined, {what}", markup=False)
                    stack.kill_broker()
                    stack.start_broker()
                    events.append((BROKER, time.time()))
                    time.sleep(WATCH_S)
                    console.print(f"round {number + 1}: broker", markup=False)
        finally:
            trickle.stop()
            seen = arrivals.stop()
    stood: dict[str, list[float]] = {}
    for what, at in events:
        end = at + WATCH_S + (SESSION_S if what in ENDINGS and ENDINGS[what].silent else 0)
        if what == BROKER:
            stood.setdefault(what, []).append(max(first_after(times, at) for times in seen))
        else:
            stood.setdefault(what, []).append(max(longest_gap(times, at, end) for times in seen))
    return stood


def commits(stack: DevStack) -> dict[str, list[float]]:
    """How long a commit takes, in ms, of a source that reads alone and of one that is a member of its group."""
    topics.create(stack.bootstrap_servers, "committed", PARTITIONS)
    found: dict[str, list[float]] = {}
    for mode in ("exclusive", "shared"):
        options = {
            "bootstrap.servers": stack.bootstrap_servers,
            "topic": "committed",
            "group.id": f"commits-{mode}",
            "format": "json",
            "group.mode": mode,
        }
        source = KafkaSource(SourceConfig("s", "kafka", options, pa.schema([pa.field("id", types.BIGINT)])))
        with tempfile.TemporaryDirectory(prefix="forebay-share-") as folder:
            if source.share is not None:
                source.share.join(Path(folder), lambda: None, lambda: False)
                source.share.look()  # as the process that plans does
                source.end_offsets()  # waits for the assignment
            for offset in range(COMMITS):
                position = KafkaPosition({("committed", number): offset for number in range(PARTITIONS)})
                began = time.perf_counter()
                source.commit_offsets(SourceCheckpoint(position.to_json(), offset))
                if offset:  # the first one connects
                    found.setdefault(mode, []).append((time.perf_counter() - began) * 1000)
            source.close()
    return found


def measure(console: Console, rounds: int = 3) -> Section:
    busy = machine.busy()
    with DevStack() as stack:
        took = commits(stack)
        console.print({mode: f"{np.median(times):.1f} ms" for mode, times in took.items()})
        stood = rebalances(console, stack, rounds)
    rows, notes = [], []
    for mode, times in took.items():
        p50, p99 = np.percentile(times, [50, 99])
        rows.append((f"a commit, group.mode {mode}", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", ""))
        notes.append(_verdict(f"a commit ({mode}), p99", float(p99) < COMMIT_AIM_MS, f"{COMMIT_AIM_MS} ms"))
    for label, what, session_s in _events():
        found = stood.get(what, [])
        spread, net = Spread.of(found), Spread.of(net_of(session_s, found))
        if not spread or not net:
            rows.append((label, "failed", ""))
            continue
        rows.append((label, f"{spread.show(1)} s", f"{net.show(1)} s" if session_s else ""))
        notes.append(_verdict(label, spread.high < FLOW_AIM_S, f"{FLOW_AIM_S:.0f} s"))
    intro = (
        f"{RATE} JSON records a second into {PARTITIONS} partitions; two processes that share a group; {rounds} rounds; "
        f"{COMMITS} commits of {PARTITIONS} partitions one after the other; {busy}. "
        "How long the partition stood still that stood still longest: median, lowest and highest. Of a process that is killed or "
        "frozen the group learns when its session is over: the time with it, and without it. Brokers allow sessions of "
        f"{SESSION_S:.0f} s and more unless their group.min.session.timeout.ms says otherwise; here it does, and both are shown. "
        "A process joins when its Spark has started and has done a batch without records: until then the other one reads all."
    )
    return Section(TITLE, intro, (Grid(("event", "time", "net of the session"), tuple(rows)),), tuple(notes))


def _events() -> Iterator[tuple[str, str, float]]:
    """Label, name, and the session that it takes the group to learn of it."""
    yield "a process joins", JOIN, 0.0
    for what, ending in ENDINGS.items():
        session_s = ending.session_s if ending.silent else 0.0
        yield (
            ending.label + (f", session.timeout.ms {session_s * 1000:.0f}" if session_s else ""),
            what,
            session_s,
        )
    yield "the broker is killed and started again, after it answers", BROKER, 0.0


def _verdict(what: str, reached: bool, aim: str) -> str:
    return f"{what}: the aim of {aim} is {'reached' if reached else '**missed**'}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    measure(Console(stderr=True), given.rounds).show(Console())


if __name__ == "__main__":
    main()
