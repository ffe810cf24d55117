"""Every claim, one after the other; what a full run measured becomes RESULTS.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from benchmarks import hotspots, machine, memory, report, throughput
from benchmarks.runner import ROOT, WORK

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
QUICK_RESULTS = WORK / "RESULTS-quick.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and few: RESULTS.md stays as it is")
    parser.add_argument("--records", type=int, help="records of the throughput claim")
    parser.add_argument("--rounds", type=int, help="rounds of the throughput claim")
    parser.add_argument("--memory-records", type=int, help="records of the memory claim")
    given = parser.parse_args()
    records = given.records or (200_000 if given.quick else 1_000_000)
    rounds = given.rounds or (2 if given.quick else 5)
    through = given.memory_records or (1_000_000 if given.quick else 10_000_000)
    words, console = Console(stderr=True), Console()
    sections = []
    claims: tuple[Callable[[], report.Section], ...] = (
        lambda: throughput.measure(words, records, rounds),
        lambda: memory.measure(words, through),
        lambda: hotspots.measure(words, records),
    )
    for claim in claims:
        section = claim()
        section.show(console)
        sections.append(section)
    target = QUICK_RESULTS if given.quick else RESULTS
    command = f"python -m benchmarks --records {records} --rounds {rounds} --memory-records {through}"
    report.write(target, report.document(machine.describe(), command, sections))
    words.print(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
