"""Claim: what bad records cost. Good ones hardly feel them, and a clean topic does not feel the clause at all.

The same good records in a clean topic and in one where every tenth record is poison, read end to end through
Spark under each policy, stock Spark's `from_json` beside them in the same rounds. Two views: one that writes all rows to
its table, and one that counts and sums, for which hardly anything is done but reading, so that a bad record costs about
what a good one does. What a single bad record costs is too little to be seen from there: that is measured in the native
code, part by part.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks import topics
from benchmarks.contest import settled
from benchmarks.decoding import trade_columns
from benchmarks.peers import forebay_sql, spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.peers.environment import PeerError
from benchmarks.peers.session import Job, Opening, Reading, Timing
from benchmarks.records import expected, values
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession
from benchmarks.shapes import COLUMNS
from forebay.connectors.contract import SourceConfig
from forebay.deadletter.breaker import HandedHealth
from forebay.deadletter.bulk import BulkLetters
from forebay.deadletter.destinations import Destination
from forebay.deadletter.letter_topic import ensure_topic
from forebay.deadletter.limiter import Bucket, TaskLimiter
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.router import Router
from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource

PARTITIONS = 4
EVERY = 10  # one record in so many is poison
TURNS = 3  # of our cases in each round: they take seconds, in which a machine has moods; the others take long
WARMUP_RECORDS = 50_000
TIMEOUT_S = 600.0
SAMPLE = 2_000
COST_ROUNDS = 301
CRATE = Path(__file__).parents[1] / "native"
COSTS = """sh ../scripts/crates.sh lock &&
    exec cargo run --quiet --release --locked --no-default-features --features costs --example costs -- "$@" """
SKIP_NS, LETTER_NS = 50, 200
TITLE = "What bad records cost"

SKIP = "ON ERROR = 'skip'"
LIMITED = "ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}')"
ALL = "ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 0)"
ALONE = {  # the same for a task without a session
    SKIP: ErrorPolicy(),
    LIMITED: ErrorPolicy("dead_letter", "dlq-alone"),
    ALL: ErrorPolicy("dead_letter", "dlq-alone", max_per_second=0),
}


@dataclass(frozen=True)
class Case:
    """One peer over one topic under one policy."""

    name: str
    peer: Peer
    topic: str
    on_error: str = ""
    query: str = "count"

    @property
    def of_rows(self) -> Case:
        """The same for the view that writes all rows."""
        return replace(self, name=f"{self.name}; all rows", query="rows")


CLEAN_SKIP = Case("clean topic, skip", forebay_sql.PEER, "clean", SKIP)
CLEAN_LETTERS = Case("clean topic, dead_letter", forebay_sql.PEER, "clean", ALL)
POISON_SKIP = Case("10 % poison, skip", forebay_sql.PEER, "poison", SKIP)
POISON_LIMITED = Case("10 % poison, dead_letter, 100 letters/s", forebay_sql.PEER, "poison", LIMITED)
POISON_LETTERS = Case("10 % poison, dead_letter, a letter each", forebay_sql.PEER, "poison", ALL)
SPARK_CLEAN = Case("clean topic, from_json", spark_sql.PEER, "clean")
SPARK_POISON = Case("10 % poison, from_json: rows of NULLs", spark_sql.PEER, "poison")
OURS = (CLEAN_SKIP, POISON_SKIP, CLEAN_LETTERS, POISON_LIMITED, POISON_LETTERS)
CASES = (*(case.of_rows for case in OURS), *OURS, SPARK_CLEAN, SPARK_POISON)
# what is claimed, over what, and the least that it may be
CLAIMED = (
    (CLEAN_LETTERS, CLEAN_SKIP, 0.98),
    (POISON_SKIP, CLEAN_SKIP, 0.95),
    (POISON_LIMITED, CLEAN_LETTERS, 0.95),
    (POISON_LETTERS, CLEAN_LETTERS, 0.95),
)
CLAIMS: tuple[tuple[Case, Case, float | None], ...] = (
    *((ours.of_rows, base.of_rows, least) for ours, base, least in CLAIMED),
    *CLAIMED,
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
    timings: dict[Case, list[Timing]] = {case: [] for case in CASES}
    with DevStack() as stack, ExitStack() as ends:
        _produce(stack.bootstrap_servers, records)
        alone = _alone(console, stack.bootstrap_servers, records, rounds)
        sessions = {}
        for peer in (forebay_sql.PEER, spark_sql.PEER):
            ready = prepare(peer)
            if isinstance(ready, str):
                raise PeerError(ready)
            sessions[peer] = PeerSession(peer, ready, Opening(stack.bootstrap_servers, ""))
            ends.callback(sessions[peer].close)
        for number in range(rounds):
            for case in turns(number):
                timings[case].append(_read(sessions[case.peer], case, records))
                rate = records / timings[case][-1].wall_s
                console.print(
                    f"round {number + 1} of {rounds}, {case.name}: {rate:,.0f} good records/s in all"
                )
    net = {case: settled(found) for case, found in timings.items()}
    walls = {case: [each.wall_s - each.start_wall_s for each in found] for case, found in net.items()}
    cpus = {case: [each.cpu_s - each.start_cpu_s for each in found] for case, found in net.items()}
    rows = []
    for case in CASES:
        rate, cpu = Spread.of([records / each for each in walls[case]]), Spread.of(cpus[case])
        assert rate is not None
        assert cpu is not None
        rows.append((case.peer.name, case.name, rate.show(0), cpu.show()))
    intro = (
        f"{records:,} good JSON records of about 120 bytes in {PARTITIONS} partitions; the poisoned topic has "
        f"{bad_in(records):,} bad ones more, of about that size: cut short, of a wrong type, an array, not UTF-8. A "
        f"view that writes all rows, and one that counts and sums. Wall time net of starting the query, which is the "
        f"median of what an almost empty topic took; {rounds} rounds in turn, our cases {TURNS} times in each; median and range."
    )
    costs = _costs()
    grids = (Grid(("peer", "case", "good records/s", "net CPU s"), tuple(rows)), alone[0], costs)
    notes = (*_ratios("good records/s", walls), *_ratios("CPU time", cpus), *alone[1], *_bounds(costs))
    return Section(TITLE, intro, grids, notes)


def turns(number: int) -> Iterator[Case]:
    """The cases of a round. The order turns, so that none always has the machine after the same other."""
    ours = [case for case in CASES if case.peer is forebay_sql.PEER]
    for turn in range(TURNS * number, TURNS * (number + 1)):
        first = turn % len(ours)
        yield from (*ours[first:], *ours[:first])
    yield from (case for case in CASES if case.peer is not forebay_sql.PEER)


def _produce(servers: str, records: int) -> None:
    for size, name in ((records, ""), (WARMUP_RECORDS, "-warmup"), (400, "-empty")):
        topics.fill(servers, f"clean{name}", values("json", "medium", size), size, PARTITIONS)
        topics.fill(servers, f"poison{name}", poisoned(size), size + bad_in(size), PARTITIONS)


def _read(session: PeerSession, case: Case, records: int) -> Timing:

    def reading(name: str, size: int) -> Reading:
        clause = case.on_error.format(dlq=f"dlq-{case.topic}")
        topic = f"{case.topic}{name}"
        return Reading(topic, size, PARTITIONS, "json", case.query, "medium", size, clause)

    job = Job(reading("", records), reading("-empty", 400), reading("-warmup", WARMUP_RECORDS))
    timing = session.ask(job, TIMEOUT_S)
    right = expected("count", records)
    if (
        timing.answer != right and case is not SPARK_POISON
    ):  # which counts them, and sums what it made of them
        raise PeerError(f"{case.name}: {timing.answer}, not {right}")
    return timing


def _alone(console: Console, servers: str, records: int, rounds: int) -> tuple[Grid, list[str]]:
    """The reading task by itself, in this process, until its letters are durable; CPU µs a good record."""
    cpus: dict[Case, list[float]] = {case: [] for case in OURS}
    for number in range(TURNS * rounds + 1):  # the first is to warm up
        for case in OURS if number % 2 else reversed(OURS):
            options = {
                "bootstrap.servers": servers,
                "topic": case.topic,
                "group.id": "alone",
                "format": "json",
            }
            config = SourceConfig(
                "alone", "kafka", options | {"startup.mode": "earliest"}, trade_columns("medium")
            )
            began = time.process_time()
            found = _task(KafkaSource(config), ALONE[case.on_error])
            took = time.process_time() - began
            if found != records:
                raise PeerError(f"{case.name}: {found:,} rows, not {records:,}")
            if number:
                cpus[case].append(took * 1e6 / records)
    shown = [(case.name, spread.show()) for case in OURS if (spread := Spread.of(cpus[case]))]
    grid = Grid(
        ("case", "CPU µs a good record"), tuple(shown), title="The reading task by itself, without Spark"
    )
    return grid, list(_ratios("CPU time of the reading task alone", cpus, CLAIMED))


def _task(source: KafkaSource, policy: ErrorPolicy) -> int:
    letters = policy.strategy == "dead_letter"
    if letters:
        ensure_topic(policy, source.options, PARTITIONS)
    rate = policy.max_per_second
    limiter = TaskLimiter(Bucket.full(rate, time.time())) if rate else None
    rows = 0
    for split in source.plan_batches(source.initial_offsets(), source.end_offsets(), 2):
        bulk = BulkLetters.open("alone", policy, source.options, split.topic_ids()) if letters else None
        router = Router("alone", policy, split, HandedHealth(), _no_plain_letters, limiter, bulk)
        source.wanted = router.wanted
        for batch in source.read_batch(split):
            rows += batch.records.num_rows
            router.see(batch)
        router.finish()
    return rows


def _no_plain_letters() -> Destination:
    raise PeerError("a letter that was not made in native code")


def _ratios(
    what: str, found: dict[Case, list[float]], claims: Sequence[tuple[Case, Case, float | None]] = CLAIMS
) -> Iterator[str]:
    """By how much the base takes less than ours: 1 is as fast."""
    for ours, base, least in claims:
        spread = Spread.of([b / a for a, b in zip(found[ours], found[base], strict=True)])
        assert spread is not None
        text = f"{what}, {base.peer.name}: {ours.name} as good as {base.name}: **{spread.show()}**"
        if least is not None:
            text += f"; at least {least:.2f} {'holds' if spread.median >= least else '**does not hold**'}"
        yield text + "."


def _costs() -> Grid:
    """Nanoseconds of each part, by kind of poison, from a program of the native crate."""
    columns = [f"{name}={kind}" for name, kind in COLUMNS["medium"].items()]
    good = list(values("json", "medium", SAMPLE))
    rows = []
    for way, name in enumerate(("cut short", "of a wrong type", "an array", "not UTF-8")):
        bad = b"\n".join(b64encode(spoilt(value, way)) for value in good)
        command = ["sh", "-c", COSTS, "costs", str(COST_ROUNDS), *columns]
        done = subprocess.run(command, cwd=CRATE, input=bad, capture_output=True, check=False)
        if done.returncode:
            raise PeerError(f"the crate's costs could not be measured: {done.stderr.decode()}")
        rows.append((name, *(f"{float(part):.0f}" for part in done.stdout.split())))
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
