"""Claim: the pool, beside Confluent's Parallel Consumer on the same topics: handlers that wait for 0 to 20 ms."""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product

from rich.console import Console

from benchmarks import machine
from benchmarks.peers import forebay_pool, parallel_consumer
from benchmarks.peers.environment import PeerError
from benchmarks.peers.pools import PoolCase, PoolTiming
from benchmarks.peers.session import Opening
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession
from benchmarks.topics import fill
from forebay.devstack import DevStack
from forebay.pool.loop import run

OURS, THEIRS = forebay_pool.PEER.name, parallel_consumer.PEER.name
TITLE = "The pool beside the Parallel Consumer"
WORKERS = 100
BATCH = 500
KEYS = 100_000
WAITS_MS = (0, 1, 5, 20)
PARTITIONS = (1, 8)
ORDERS = ("key", "unordered")
SECONDS = 8  # about how long a case takes at its best, if there are records enough
TIMEOUT_S = 300.0
BARE_S = 3.0


@dataclass(frozen=True)
class Row:
    """A case, and what each peer measured, a figure a round."""

    wait_ms: int
    partitions: int
    order: str
    batch: int = 0
    measured: dict[str, list[PoolTiming]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        handler = (
            f"{self.wait_ms} ms"
            if self.wait_ms
            else f"no-op, lists of {self.batch}"
            if self.batch
            else "no-op"
        )
        return f"{handler}, {self.partitions} partition{'s' if self.partitions > 1 else ''}, {self.order}"

    def most(self) -> float | None:
        """What so many workers can do at all."""
        return WORKERS / self.wait_ms * 1000 if self.wait_ms else None

    def case(self, records: int) -> PoolCase:
        most = self.most()
        wanted = records if most is None else min(records, int(most * SECONDS))
        group = uuid.uuid4().hex
        return PoolCase(_topic(self.partitions), group, wanted, self.wait_ms, self.order, WORKERS, self.batch)


def measure(console: Console, records: int = 500_000, rounds: int = 3, only: str = "") -> Section:
    busy = machine.busy()
    rows = [Row(w, p, o) for w, p, o in product(WAITS_MS, PARTITIONS, ORDERS)]
    rows += [Row(0, p, "unordered", BATCH) for p in PARTITIONS]
    rows = [row for row in rows if all(word in row.name for word in only.split())]
    notes: list[str] = []
    with DevStack() as stack:
        for partitions in PARTITIONS:
            console.print(f"producing {records:,} records into {partitions} partitions")
            values = (b"%0100d" % n for n in range(records))
            fill(stack.bootstrap_servers, _topic(partitions), values, records, partitions, keys=KEYS)
        sessions: dict[str, PeerSession] = {}
        for peer in (forebay_pool.PEER, parallel_consumer.PEER):
            ready = prepare(peer)
            if isinstance(ready, str):
                notes.append(f"{peer.name} was not measured: {ready}")
            else:
                sessions[peer.name] = PeerSession(peer, ready, Opening(stack.bootstrap_servers, ""))
        try:
            for number in range(rounds):
                for row in rows:
                    _round(console, row, records, number, sessions, notes)
        finally:
            for session in sessions.values():
                session.close()
        versions = {name: session.version for name, session in sessions.items()}
    for wait_ms in sorted({row.wait_ms for row in rows if row.wait_ms}):
        notes.append(
            f"{WORKERS} coroutines that only wait for {wait_ms} ms, without a pool, a broker or a record, reach "
            f"{bare(wait_ms):.0%} of workers ÷ latency on this machine: its timers allow no more."
        )
    return section(rows, notes, versions, busy)


def bare(wait_ms: int) -> float:
    """What is left of workers ÷ latency when nothing is done but to wait, in the event loop that pools have."""

    async def main() -> None:
        async def wait() -> int:
            count = 0
            while time.monotonic() < end:
                await asyncio.sleep(wait_ms / 1000)
                count += 1
            return count

        began = time.monotonic()
        end = began + BARE_S
        counts = await asyncio.gather(*(wait() for _ in range(WORKERS)))
        found.append(sum(counts) / (time.monotonic() - began) / (WORKERS / wait_ms * 1000))

    found: list[float] = []
    run(main())
    return found[0]


def _round(
    console: Console, row: Row, records: int, number: int, sessions: dict[str, PeerSession], notes: list[str]
) -> None:
    order = list(sessions) if number % 2 == 0 else list(reversed(sessions))
    for name in order:
        if row.batch and name == THEIRS:
            continue
        session = sessions[name]
        if not session.warm:
            session.warm = True
            session.tell(asdict(Row(0, 8, "key").case(records)), TIMEOUT_S)
        try:
            timing = PoolTiming(**session.tell(asdict(row.case(records)), TIMEOUT_S))
        except PeerError as error:
            notes.append(f"{name}, {row.name}: {error}")
            continue
        row.measured.setdefault(name, []).append(timing)
        console.print(
            f"{row.name}: {name} {timing.rate:,.0f} records/s, {timing.cpu_per_million:.1f} CPU s per million"
        )


def section(rows: Sequence[Row], notes: Sequence[str], versions: dict[str, str], busy: str) -> Section:
    named = " and ".join(f"{name} {version}" for name, version in versions.items())
    intro = (
        f"{named}, each in one process with {WORKERS} workers, on the same topics: records of 100 bytes with one of "
        f"{KEYS:,} keys; {busy}. A handler waits (asyncio.sleep there, Thread.sleep here) or does nothing. From the "
        "first handled record to the last; medians with lowest and highest."
    )
    head = (
        "handler, topic, order",
        f"{OURS} records/s",
        f"{THEIRS} records/s",
        "ratio",
        "of workers ÷ latency",
    )
    head += (f"{OURS} CPU s per million", f"{THEIRS} CPU s per million")
    return Section(TITLE, intro, (Grid(head, tuple(_cells(row) for row in rows)),), tuple(notes))


def _cells(row: Row) -> tuple[str, ...]:
    rates = {name: Spread.of([t.rate for t in row.measured.get(name, [])]) for name in (OURS, THEIRS)}
    costs = {
        name: Spread.of([t.cpu_per_million for t in row.measured.get(name, [])]) for name in (OURS, THEIRS)
    }
    ours, theirs, most = rates[OURS], rates[THEIRS], row.most()
    return (
        row.name,
        ours.show(0) if ours else "–",
        theirs.show(0) if theirs else "–",
        f"{ours.median / theirs.median:.2f}" if ours and theirs else "–",
        f"{ours.median / most:.0%}" if ours and most else "–",
        *(cost.show(1) if cost else "–" for cost in costs.values()),
    )


def _topic(partitions: int) -> str:
    return f"pool-{partitions}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help='rows with these words: "5 ms key"')
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.rounds, given.only).show(Console())


if __name__ == "__main__":
    main()
