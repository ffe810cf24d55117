"""Peers on the same topics, in turn, round after round, each answer checked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache

from rich.console import Console

from benchmarks import topics
from benchmarks.cases import Case
from benchmarks.peers import flink_sql, floor, forebay_sql, laminar, quix, spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.peers.environment import PeerError
from benchmarks.peers.session import Job, Opening, Reading, Timing
from benchmarks.records import expected, values
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession, PeerTimeout

PEERS = (forebay_sql.PEER, spark_sql.PEER, flink_sql.PEER, laminar.PEER, quix.PEER, floor.PEER)
OURS = forebay_sql.NAME
WARMUP_RECORDS = 50_000
EMPTY_RECORDS = 400  # some of them pass the filter, and 16 partitions have some each
LARGE_SHARE = 0.2
# A slow peer gets fewer records, so that a round does not wait for it; figures are per record.
SHARES = {(quix.NAME, "windows"): 0.05, (quix.NAME, "count"): 0.2, (quix.NAME, "filter"): 0.2}

Measured = Timing | str
"""A timing, or why there is none."""


@dataclass
class Results:
    """What a contest measured: by case and peer, one entry a round."""

    rounds: int
    versions: dict[str, str] = field(default_factory=dict)
    measured: dict[Case, dict[str, list[Measured]]] = field(default_factory=dict)

    def add(self, case: Case, peer: str, found: Measured) -> None:
        self.measured.setdefault(case, {}).setdefault(peer, []).append(found)

    def settle(self) -> None:
        """Every round is net of the median start."""
        for peers in self.measured.values():
            for peer, found in peers.items():
                good = iter(settled([item for item in found if isinstance(item, Timing)]))
                peers[peer] = [item if isinstance(item, str) else next(good) for item in found]

    def of(self, case: Case, peer: str) -> list[Measured]:
        return self.measured.get(case, {}).get(peer, [])


def settled(found: Sequence[Timing]) -> list[Timing]:
    """With the median start in each: starting a job varies more than reading does, and is the same for all."""
    if not found:
        return []
    wall_s = statistics.median(item.start_wall_s for item in found)
    cpu_s = statistics.median(item.start_cpu_s for item in found)
    return [replace(item, start_wall_s=wall_s, start_cpu_s=cpu_s) for item in found]


def some(peers: Sequence[Peer], words: str) -> list[Peer]:
    """The peers whose name has one of these words; without words all."""
    wanted = [word.strip().lower() for word in words.split(",") if word.strip()]
    return [peer for peer in peers if not wanted or any(word in peer.name.lower() for word in wanted)]


@cache
def answer(query: str, records: int) -> dict[str, list[int]]:
    return expected(query, records)


def counted(found: dict[str, list[int]]) -> int:
    return sum(n for n, _ in found.values())


def share(peer: str, case: Case) -> float:
    return SHARES.get((peer, case.query), 1.0) * (LARGE_SHARE if case.size == "large" else 1.0)


class Contest:
    """One broker, its topics, and a process a peer, for as long as the block lasts."""

    def __init__(
        self,
        console: Console,
        servers: str,
        peers: Sequence[Peer],
        timeout_s: float,
        warmup_records: int = WARMUP_RECORDS,
    ) -> None:
        self._console = console
        self._servers = servers
        self._timeout_s = timeout_s
        self._warmup_records = warmup_records
        self._topics: set[str] = set()
        self._refused: dict[str, str] = {}
        self._sessions: dict[str, PeerSession] = {}
        self.peers = peers

    def __enter__(self) -> Contest:
        for peer in self.peers:
            self._console.print(f"preparing {peer.name}")
            ready = prepare(peer)
            if isinstance(ready, str):
                self._refused[peer.name] = ready
            else:
                self._sessions[peer.name] = PeerSession(peer, ready, Opening(self._servers, ""))
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for session in self._sessions.values():
                stack.callback(session.close)

    def run(self, cases: Sequence[Case], records: int, rounds: int) -> Results:
        """Every case in each round; who begins changes from case to case and from round to round."""
        results = Results(rounds)
        too_slow: dict[tuple[Case, str], str] = {}
        for number in range(rounds):
            for position, case in enumerate(cases):
                turn = (number + position) % len(self.peers)
                for peer in [*self.peers[turn:], *self.peers[:turn]]:
                    if peer is floor.PEER and case.query != "count":
                        continue  # it asks nothing, so it does the same for every query
                    found: Measured
                    if (case, peer.name) in too_slow:
                        found = too_slow[case, peer.name]
                    else:
                        try:
                            found = self._measure(peer, case, round(records * share(peer.name, case)))
                        except PeerTimeout as error:
                            found = too_slow[case, peer.name] = str(error)
                        except PeerError as error:
                            found = str(error)
                    results.add(case, peer.name, found)
                    self._tell(f"round {number + 1} of {rounds}, {case.name}, {peer.name}: {_words(found)}")
        results.settle()
        results.versions = {name: session.version for name, session in self._sessions.items()}
        return results

    def forget_topics(self) -> None:
        """What comes next reads other topics: make room on the disk."""
        topics.delete(self._servers, self._topics)
        self._topics.clear()

    def _measure(self, peer: Peer, case: Case, records: int) -> Timing:
        if peer.name in self._refused:
            raise PeerError(self._refused[peer.name])
        job = Job(
            self._reading(case, records),
            self._reading(case, EMPTY_RECORDS),
            self._reading(case, min(records, self._warmup_records)),
        )
        timing = self._sessions[peer.name].ask(job, self._timeout_s)
        right = answer(case.query, records)
        if peer is floor.PEER:
            right = {"": [records, 0]}
        if timing.answer != right:
            raise PeerError(_difference(timing.answer, right))
        return timing

    def _reading(self, case: Case, records: int) -> Reading:
        topic = f"{case.shape}-{records}"
        if topic not in self._topics:
            self._tell(f"producing {records:,} records into {topic}")
            made = values(case.format, case.size, records)
            topics.fill(self._servers, topic, made, records, case.partitions, chunk=1)
            self._topics.add(topic)
        rows = counted(answer(case.query, records))
        return Reading(topic, records, case.partitions, case.format, case.query, case.size, rows)

    def _tell(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _words(found: Measured) -> str:
    if isinstance(found, str):
        return f"failed: {found}"
    net = f"{found.net_rate:,.0f}" if found.net_rate else "?"
    return f"{found.rate:,.0f} records/s, {net} net, {found.cpu_per_million:.1f} CPU s per million"


def _difference(found: dict[str, list[int]], right: dict[str, list[int]]) -> str:
    wrong = sum(found.get(key) != value for key, value in right.items())
    return (
        f"wrong answer: {wrong} of {len(right)} rows differ; its counts add up to {counted(found):,}, "
        f"not {counted(right):,}"
    )
