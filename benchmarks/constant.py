"""Claim: a record costs the same after a hundred million as after the first million, and memory stays flat.

One process reads the same topic again and again, each time by a new source and view, until so many records
have gone through; each micro-batch is a measurement, and the memory of the Python workers is looked at all the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks import machine
from benchmarks.contest import answer as right_answer
from benchmarks.figures import Figure, Panel, Series
from benchmarks.peers import forebay_long
from benchmarks.peers.environment import PeerError
from benchmarks.peers.session import Opening, Reading
from benchmarks.records import values
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession
from benchmarks.topics import fill
from forebay.devstack import DevStack

TITLE = "Constant cost"
FLAT = 1.10  # the last tenth may cost this much of the second; the first is warm-up
PARTS = 10
READING_TIMEOUT_S = 900.0
BATCH_RECORDS = 1_000_000
_MIB = 2**20


@dataclass(frozen=True)
class Batch:
    """One micro-batch: how many records were through after it, and what each of its own took."""

    through: int
    wall_us: float
    cpu_us: float


@dataclass(frozen=True)
class Look:
    """What all Python workers together had in memory when so many records were through."""

    through: int
    mib: float


def measure(
    console: Console,
    records: int = 100_000_000,
    topic_records: int = 10_000_000,
    limit_s: float = 900.0,
    partitions: int = 4,
) -> Section:
    busy = machine.busy()
    topic_records = min(topic_records, records)
    batches: list[Batch] = []
    looks: list[Look] = []
    notes: list[str] = []
    through, deadline = 0, time.monotonic() + limit_s
    with DevStack() as stack:
        console.print(f"producing {topic_records:,} records")
        made = values("json", "medium", topic_records)
        fill(stack.bootstrap_servers, "long", made, topic_records, partitions, chunk=1)
        reading = Reading("long", topic_records, partitions, "json", "count", "medium", topic_records)
        ready = prepare(forebay_long.PEER)
        assert not isinstance(ready, str)
        session = PeerSession(
            forebay_long.PEER, ready, Opening(stack.bootstrap_servers, "", batch_records=BATCH_RECORDS)
        )
        try:
            while through < records and time.monotonic() < deadline:
                found = session.tell(asdict(reading), READING_TIMEOUT_S)
                if found["answer"] != right_answer("count", topic_records):
                    raise PeerError("wrong answer: the figures would mean nothing")
                looks += [Look(through + rows, size / _MIB) for rows, size in found["memory"]]
                for rows, wall_s, cpu_s in found["batches"]:
                    through += rows
                    batches.append(Batch(through, wall_s / rows * 1e6, cpu_s / rows * 1e6))
                console.print(
                    f"{through:,} records through, {topic_records / found['wall_s']:,.0f} records/s"
                )
        except PeerError as error:
            notes.append(f"Failed after {through:,} records: {error}")
        finally:
            session.close()
    if through < records and not notes:
        notes.append(f"Stopped after {limit_s:.0f} s with {through:,} of {records:,} records through.")
    return section(batches, looks, notes, topic_records, busy)


def section(
    batches: Sequence[Batch], looks: Sequence[Look], notes: Sequence[str], topic_records: int, busy: str
) -> Section:
    intro = (
        f"One process reads the same topic of {topic_records:,} JSON records again and again, each time by a new "
        f"source and view (count), in micro-batches of {BATCH_RECORDS:,}; {busy}. Time of a whole micro-batch, "
        "Spark's logs included, by its records; the CPU time of starting a reading is in that of its first batch. "
        "Resident memory of all Python workers together, looked at every "
        f"{forebay_long.SAMPLE_S} s; medians with lowest and highest."
    )
    parts = tenths(batches)
    memory = [_during(looks, part) for part in parts]
    rows = tuple(
        (f"{part[0].through:,}–{part[-1].through:,}", str(len(part)), *_figures(part), _shown(mib, 0))
        for part, mib in zip(parts, memory, strict=True)
    )
    said = list(notes)
    if len(parts) > 2:
        compared = (
            ("Wall time a record", [[b.wall_us for b in part] for part in parts]),
            ("CPU time a record", [[b.cpu_us for b in part] for part in parts]),
            ("Memory of the workers", memory),
        )
        said += [_verdict(what, found[1], found[-1]) for what, found in compared if found[1] and found[-1]]
    head = ("records through", "micro-batches", "wall µs a record", "CPU µs a record", "workers' memory, MiB")
    plots = (_plot(batches), _memory_plot(looks)) if batches and looks else ()
    return Section(TITLE, intro, (Grid(head, rows),), tuple(said), plots)


def _verdict(what: str, early: Sequence[float], late: Sequence[float]) -> str:
    ratio = statistics.median(late) / statistics.median(early)
    word = "constant" if ratio <= FLAT else "NOT constant"
    return (
        f"{what}, last tenth / second tenth (the first is warm-up): **{ratio:.2f}**; at most {FLAT:.2f} is "
        f"constant: **{word}**."
    )


def _during(looks: Sequence[Look], part: Sequence[Batch]) -> list[float]:
    return [look.mib for look in looks if part[0].through <= look.through <= part[-1].through]


def tenths(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """The micro-batches in ten parts of about equal number, fewer if there are fewer."""
    size = max(1, -(-len(batches) // PARTS))
    return [batches[start : start + size] for start in range(0, len(batches), size)]


def _figures(part: Sequence[Batch]) -> tuple[str, str]:
    return _shown([b.wall_us for b in part]), _shown([b.cpu_us for b in part])


def _shown(found: Sequence[float], digits: int = 2) -> str:
    spread = Spread.of(found)
    return spread.show(digits) if spread else "–"


def _plot(batches: Sequence[Batch]) -> Figure:
    at = [f"{batch.through / 1e6}" for batch in batches]
    lines = [
        Series("wall", [[b.wall_us, b.wall_us, b.wall_us] for b in batches]),
        Series("CPU, all processes", [[b.cpu_us, b.cpu_us, b.cpu_us] for b in batches]),
    ]
    label = "µs a record"
    return Figure("constant", "lines", label, "Cost of a record, by millions through", [Panel("", at, lines)])


def _memory_plot(looks: Sequence[Look]) -> Figure:
    at = [f"{look.through / 1e6}" for look in looks]
    line = Series("all Python workers", [[look.mib, look.mib, look.mib] for look in looks])
    title = "Memory of the Python workers, by millions through"
    return Figure("constant-memory", "lines", "MiB", title, [Panel("", at, [line])])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.constant", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--topic-records", type=int, default=10_000_000)
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds after which no new reading begins"
    )
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.topic_records, given.limit).show(Console())


if __name__ == "__main__":
    main()
