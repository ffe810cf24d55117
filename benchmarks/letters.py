"""Claim: what bad records cost. Good ones hardly feel them, and a clean topic does not feel the clause at all.

The same good records in a clean topic and in one where every tenth record is poison, read end to end through
Spark under each policy, stock Spark's `from_json` beside them in the same rounds. What a single bad record
costs is too little to be seen from there: that is measured in the native code, part by part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from benchmarks import topics
from benchmarks.decoding import trade_columns
from benchmarks.peers import forebay_sql, spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.peers.environment import PeerError
from benchmarks.peers.session import Job, Opening, Reading
from benchmarks.records import expected, values
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession
from forebay.devstack import DevStack
from forebay.formats import decoder
from forebay.native import native

PARTITIONS = 4
EVERY = 10  # one record in so many is poison
WARMUP_RECORDS = 50_000
TIMEOUT_S = 600.0
SAMPLE = 2_000
COST_ROUNDS = 301
SKIP_NS, LETTER_NS = 50, 200
TITLE = "What bad records cost"

SKIP = "ON ERROR = 'skip'"
LIMITED = "ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}')"
ALL = "ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 0)"


@dataclass(frozen=True)
class Case:
    """One peer over one topic under one policy."""

    name: str
    peer: Peer
    topic: str
    on_error: str = ""


CLEAN_SKIP = Case("clean topic, skip", forebay_sql.PEER, "clean", SKIP)
CLEAN_LETTERS = Case("clean topic, dead_letter", forebay_sql.PEER, "clean", ALL)
POISON_SKIP = Case("10 % poison, skip", forebay_sql.PEER, "poison", SKIP)
POISON_LIMITED = Case("10 % poison, dead_letter, 100 letters/s", forebay_sql.PEER, "poison", LIMITED)
POISON_LETTERS = Case("10 % poison, dead_letter, a letter each", forebay_sql.PEER, "poison", ALL)
SPARK_CLEAN = Case("clean topic, from_json", spark_sql.PEER, "clean")
SPARK_POISON = Case("10 % poison, from_json: rows of NULLs", spark_sql.PEER, "poison")
CASES = (
    CLEAN_SKIP,
    POISON_SKIP,
    CLEAN_LETTERS,
    POISON_LIMITED,
    POISON_LETTERS,
    SPARK_CLEAN,
    SPARK_POISON,
)
# what is claimed, over what, and the least that it may be
CLAIMS = (
    (CLEAN_LETTERS, CLEAN_SKIP, 0.98),
    (POISON_SKIP, CLEAN_SKIP, 0.95),
    (POISON_LIMITED, CLEAN_LETTERS, 0.95),
    (POISON_LETTERS, CLEAN_LETTERS, 0.95),
    (SPARK_POISON, SPARK_CLEAN, None),
)


def spoilt(value: bytes, number: int) -> bytes:
    """A good record made bad, in one of four ways, of about its size."""
    ways = (
        value[: len(value) * 4 // 5],
        value.replace(b'"quantity":', b'"quantity":"many","was":'),
        b"[" + value + b"]",
        value[:60] + b"\xff" + value[61:],
    )
    return ways[number % len(ways)]


def poisoned(records: int) -> Iterator[bytes]:
    """So many good records, and a bad one before every nine of them."""
    for number, value in enumerate(values("json", "medium", records)):
        if number % (EVERY - 1) == 0:
            yield spoilt(value, number // (EVERY - 1))
        yield value


def bad_in(records: int) -> int:
    return -(-records // (EVERY - 1))


def measure(console: Console, records: int = 1_000_000, rounds: int = 5) -> Section:
    walls: dict[Case, list[float]] = {case: [] for case in CASES}
    with DevStack() as stack, ExitStack() as ends:
        _produce(stack.bootstrap_servers, records)
        sessions = {}
        for peer in (forebay_sql.PEER, spark_sql.PEER):
            ready = prepare(peer)
            if isinstance(ready, str):
                raise PeerError(ready)
            sessions[peer] = PeerSession(peer, ready, Opening(stack.bootstrap_servers, ""))
            ends.callback(sessions[peer].close)
        for number in range(rounds):
            for turn in range(len(CASES)):
                case = CASES[(turn + number) % len(CASES)]
                walls[case].append(wall := _read(sessions[case.peer], case, records))
                console.print(
                    f"round {number + 1} of {rounds}, {case.name}: {records / wall:,.0f} good records/s"
                )
    rows = []
    for case, found in walls.items():
        rate, wall = Spread.of([records / each for each in found]), Spread.of(found)
        assert rate is not None
        assert wall is not None
        rows.append((case.peer.name, case.name, rate.show(0), wall.show()))
    intro = (
        f"{records:,} good JSON records of about 120 bytes in {PARTITIONS} partitions; the poisoned topic has "
        f"{bad_in(records):,} bad ones more, of about that size: cut short, of a wrong type, an array, not UTF-8. A "
        f"view that counts and sums. Wall time net of starting the query; {rounds} rounds in turn, median and range."
    )
    grids = (Grid(("peer", "case", "good records/s", "net wall s"), tuple(rows)), _costs())
    return Section(TITLE, intro, grids, (*_ratios(walls), *_bounds(grids[1])))


def _produce(servers: str, records: int) -> None:
    for size, name in ((records, ""), (WARMUP_RECORDS, "-warmup"), (400, "-empty")):
        topics.fill(servers, f"clean{name}", values("json", "medium", size), size, PARTITIONS)
        topics.fill(servers, f"poison{name}", poisoned(size), size + bad_in(size), PARTITIONS)


def _read(session: PeerSession, case: Case, records: int) -> float:
    def reading(name: str, size: int) -> Reading:
        clause = case.on_error.format(dlq=f"dlq-{case.topic}")
        topic = f"{case.topic}{name}"
        return Reading(topic, size, PARTITIONS, "json", "count", "medium", size, clause)

    job = Job(reading("", records), reading("-empty", 400), reading("-warmup", WARMUP_RECORDS))
    timing = session.ask(job, TIMEOUT_S)
    right = expected("count", records)
    if (
        timing.answer != right and case is not SPARK_POISON
    ):  # which counts them, and sums what it made of them
        raise PeerError(f"{case.name}: {timing.answer}, not {right}")
    return timing.wall_s - timing.start_wall_s


def _ratios(walls: dict[Case, list[float]]) -> Iterator[str]:
    for ours, base, least in CLAIMS:
        found = Spread.of([b / a for a, b in zip(walls[ours], walls[base], strict=True)])
        assert found is not None
        text = f"{ours.peer.name}: good records/s, {ours.name} / {base.name}: **{found.show()}**"
        if least is not None:
            text += f"; at least {least:.2f} {'holds' if found.median >= least else '**does not hold**'}"
        yield text + "."


def _costs() -> Grid:
    """Nanoseconds of each part, by kind of poison."""
    module = native()
    if module is None:
        raise PeerError("the native reader is not built")
    schema = trade_columns("medium")
    good = list(values("json", "medium", SAMPLE))
    plain = decoder("json", schema, {})
    rows = []
    for way, name in enumerate(("cut short", "of a wrong type", "an array", "not UTF-8")):
        bad = [spoilt(value, way) for value in good]
        found = module.costs("json", plain.schema, {}, bad, COST_ROUNDS)
        rows.append((name, *(f"{part:.0f}" for part in found)))
    head = ("JSON that is", "to find it bad", "to skip it, over that", "words for it", "a letter, over both")
    return Grid(head, tuple(rows), title="Nanoseconds a bad record, in the native code")


def _bounds(costs: Grid) -> Iterator[str]:
    for column, bound, what in ((2, SKIP_NS, "skipping a bad record"), (4, LETTER_NS, "making a letter")):
        worst = max(float(row[column]) for row in costs.rows)
        holds = "holds" if worst < bound else "**does not hold**"
        yield f"{what}: at most {worst:.0f} ns over the cost of finding it bad; below {bound} ns {holds}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.letters", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.rounds).show(Console())


if __name__ == "__main__":
    main()
