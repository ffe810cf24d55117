"""Claim: a dashboard that somebody looks at costs the pipeline next to nothing.

One session reads the same topic again and again into a table, in turn with and without a dashboard in the same process, whose
overview and source page are open in a real browser. The browser has the lowest priority: it is usually on another machine, and
what it draws is not the pipeline's cost. A round is a block of four readings, and its figure the rate with the dashboard over the rate without; beside it stands
the CPU time of the pipeline's processes (this one, Spark and its workers; not the browser), which other work on the machine
does not change.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from rich.console import Console

import forebay
from benchmarks.report import Grid, Section, Spread
from benchmarks.topics import produce
from forebay.devstack import DevStack

TITLE = "What an open dashboard costs"
MOST = 0.03  # of the throughput
PARTITIONS = 4
# Every second reading is faster than the one before it, by more than what is to be seen: each is once at either place.
BLOCK = (True, False, False, True)
SETTLED_S = 6.0  # before each reading, with and without: what was dropped is gone, and the pages are open
TIMEOUT_S = 900.0
COLUMNS = (
    "trade_id BIGINT, symbol STRING, price DOUBLE, quantity INT, side STRING, venue STRING, event_time BIGINT"
)


@contextlib.contextmanager
def _looked_at(session: forebay.Session, source: str) -> Iterator[None]:
    """The dashboard of the session, with two of its pages open."""
    from forebay.web.backend import Backend
    from forebay.web.server import Dashboard

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise RuntimeError("the claim about the dashboard needs Chromium")
    with (
        Dashboard(Backend(session.home, session), port=0) as dashboard,
        tempfile.TemporaryDirectory() as profile,
    ):
        command = [
            "nice", "-n", "19", browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            f"--user-data-dir={profile}", "--remote-debugging-port=0", dashboard.url, f"{dashboard.url}/source?name={source}",
        ]  # fmt: skip
        running = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, 15)
            running.wait(20)


def _cpu_s() -> float:
    """What this process and those that it started have used, but for a browser."""
    total = 0.0
    me = psutil.Process()
    for each in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            if "chrom" not in each.name():
                times = each.cpu_times()
                total += times.user + times.system
    return total


def _read(
    session: forebay.Session, brokers: str, records: int, name: str, looked_at: bool
) -> tuple[float, float]:
    """One reading of the topic, from its start to its end: records a second, CPU seconds per million."""
    session.execute(
        f"CREATE SOURCE {name} ({COLUMNS}) FROM KAFKA (brokers = '{brokers}', topic = 'trades', group_id = '{name}', "
        "auto_offset_reset = 'earliest') FORMAT JSON"
    )
    try:
        with _looked_at(session, name) if looked_at else contextlib.nullcontext():
            time.sleep(SETTLED_S)
            # The same reading just before, in both: a machine that was idle is slower at first, and only one of them was.
            _rows(session, name, "before")
            used, began = _cpu_s(), time.monotonic()
            _rows(session, name, "timed")
            took, cpu = time.monotonic() - began, _cpu_s() - used
            found = session.sql(f"SELECT count(*) FROM {name}_timed").fetchall()[0][0]
            if found != records:
                raise RuntimeError(
                    f"{name}: {found:,} rows of {records:,} were there when the clock was stopped"
                )
            return records / took, cpu / records * 1e6
    finally:
        session.execute(f"DROP SOURCE {name} CASCADE")


def _rows(session: forebay.Session, source: str, name: str) -> None:
    session.execute(f"CREATE MATERIALIZED VIEW {source}_{name} AS SELECT * FROM {source}")
    session.wait(until_caught_up=True, timeout=TIMEOUT_S)


def measure(console: Console, records: int = 10_000_000, rounds: int = 5) -> Section:
    intro = (
        f"{records:,} JSON trades into a table of all rows, {rounds} rounds; in each the pipeline runs with and without a dashboard "
        "in its process, the overview and the source's page open in Chromium at the lowest priority. A round is a block of four: with, without, without, with."
    )
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with DevStack() as stack, tempfile.TemporaryDirectory() as folder:
        console.print(f"producing {records:,} records")
        produce(stack.bootstrap_servers, "trades", records, PARTITIONS)
        with forebay.connect(home=Path(folder) / "home", master="local[2]") as session:
            for looked_at in (True, False):
                _read(session, stack.bootstrap_servers, records, f"warm_{looked_at}".lower(), looked_at)
            for number in range(rounds):
                for turn, looked_at in enumerate(BLOCK):
                    name = f"r{number}_{turn}_{'with' if looked_at else 'without'}"
                    rate, cpu = _read(session, stack.bootstrap_servers, records, name, looked_at)
                    found[looked_at].append((rate, cpu))
                    console.print(f"{name}: {rate:,.0f} records/s, {cpu:.2f} CPU s per million")
    return _section(intro, found)


def _section(intro: str, found: dict[bool, list[tuple[float, float]]]) -> Section:
    rates, cpus = (
        [
            math.sqrt(math.prod(each[at] for each in mine) / math.prod(each[at] for each in other))
            for mine, other in zip(_pairs(found[True]), _pairs(found[False]), strict=True)
        ]
        for at in (0, 1)
    )
    cost = 1 - statistics.median(rates)
    # A dashboard makes nothing faster: where the spread goes past 1, noise is larger than what is measured.
    noise = " (within the noise)" if max(rates) > 1 else ""
    verdict = "less than" if cost < MOST else "NOT less than"
    rows = tuple(
        (
            what,
            *(
                _shown([figures[at] for figures in found[looked_at]], digits)
                for at, digits in ((0, 0), (1, 2))
            ),
        )
        for what, looked_at in (("without", False), ("with an open dashboard", True))
    )
    notes = (
        f"With / without, block by block: **{_shown(rates, 3)}** of the throughput; a cost of {cost:.1%}{noise}, {verdict} {MOST:.0%}.",
        f"With / without, CPU time of the pipeline's processes: **{_shown(cpus, 3)}**.",
    )
    return Section(TITLE, intro, (Grid(("the pipeline", "records/s", "CPU s per million"), rows),), notes)


def _pairs(figures: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The two readings of each block."""
    return [figures[at : at + 2] for at in range(0, len(figures), 2)]


def _shown(values: list[float], digits: int) -> str:
    spread = Spread.of(values)
    return spread.show(digits) if spread is not None else "not measured"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.rounds).show(Console())


if __name__ == "__main__":
    main()
