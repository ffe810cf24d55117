"""The tables of a contest: each peer's figures with their spread, and Forebay's ratio to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.cases import Case
from benchmarks.contest import OURS, Measured, Results
from benchmarks.peers.session import Timing
from benchmarks.report import Grid, Spread

Figure = Callable[[Timing], float | None]


def rate(timing: Timing) -> float | None:
    return timing.rate


def net_rate(timing: Timing) -> float | None:
    return timing.net_rate


def cpu(timing: Timing) -> float | None:
    return timing.cpu_per_million


def net_cpu(timing: Timing) -> float | None:
    return timing.net_cpu_per_million


def spread(found: Iterable[Measured], figure: Figure) -> Spread | None:
    """Over all rounds that succeeded, or nothing: leaving out some for their figure would be choosing."""
    values = [figure(item) for item in found if isinstance(item, Timing)]
    there = [value for value in values if value is not None]
    return Spread.of(there) if len(there) == len(values) else None


def ratio(results: Results, case: Case, peer: str, figure: Figure) -> Spread | None:
    """Ours to theirs, round by round; nothing if a round in which both succeeded lacks the figure."""
    found = []
    for ours, theirs in zip(results.of(case, OURS), results.of(case, peer), strict=False):
        if isinstance(ours, Timing) and isinstance(theirs, Timing):
            a, b = figure(ours), figure(theirs)
            if not a or not b:
                return None
            found.append(a / b)
    return Spread.of(found)


def point(results: Results, case: Case, peer: str, figure: Figure) -> list[float] | None:
    """For a plot. None where there is no figure, an empty list where the peer was not asked."""
    measured = results.of(case, peer)
    found = spread(measured, figure)
    return [found.median, found.low, found.high] if found else None if measured else []


def shown(value: Spread | None, digits: int) -> str:
    return value.show(digits) if value else "–"


def case_grid(results: Results, case: Case, peers: Sequence[str]) -> Grid:
    """A row a peer; one that failed in every round has its error there."""
    rows = []
    for peer in peers:
        found = results.of(case, peer)
        good = [item for item in found if isinstance(item, Timing)]
        if not found:
            continue
        if not good:
            rows.append((peer, f"0 of {len(found)}", "", f"failed: {found[0]}", "", "", "", "", "", "", ""))
            continue
        ours = [shown(ratio(results, case, peer, figure), 2) for figure in (rate, net_rate, net_cpu)]
        speeds = [shown(spread(found, figure), 0) for figure in (rate, net_rate)]
        costs = [shown(spread(found, figure), 2) for figure in (cpu, net_cpu)]
        start = f"{good[0].start_wall_s:.2f}"
        beside = ours if peer != OURS else ["", "", ""]
        times = f"{len(good)} of {len(found)}"
        rows.append((peer, times, f"{good[0].records:,}", *speeds, *costs, start, *beside))
    head = (
        "peer", "rounds", "records", "records/s", "net of job start", "CPU s per million",
        "net of job start", "job start, s", f"{OURS} / peer, speed", f"{OURS} / peer, net speed", f"{OURS} / peer, net CPU",
    )  # fmt: skip
    return Grid(head, tuple(rows))


def overview(results: Results, peers: Sequence[str], figure: Figure) -> Grid:
    """Our ratio to each peer, case by case."""
    others = [peer for peer in peers if peer != OURS]
    rows = []
    for case in results.measured:
        cells = []
        for peer in others:
            found = ratio(results, case, peer, figure)
            measured = results.of(case, peer)
            failed = bool(measured) and not any(isinstance(item, Timing) for item in measured)
            cells.append(found.show() if found else "failed" if failed else "–")
        rows.append((case.name, *cells))
    return Grid(("case", *others), tuple(rows))


def failures(results: Results) -> list[str]:
    """Every error once, with where it came up."""
    where: dict[tuple[str, str], list[str]] = {}
    for case, peers in results.measured.items():
        for peer, found in peers.items():
            for item in found:
                if isinstance(item, str):
                    where.setdefault((peer, item), []).append(case.name)
    return [
        f"{peer}: “{error}” in {len(names)} of the runs ({'; '.join(dict.fromkeys(names))})."
        for (peer, error), names in where.items()
    ]
