"""From rounds to a table, and from tables to RESULTS.md. Pure but for `write`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure
from benchmarks.peers.contract import Outcome
from benchmarks.runner import Round

PLOTS = "plots"  # the folder beside RESULTS.md
_FIGURES = ("records/s", "records/s inside batches", "CPU s per million")


@dataclass(frozen=True)
class Spread:
    """A figure that was measured several times."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        return Spread(statistics.median(values), min(values), max(values)) if values else None

    def show(self, digits: int = 2) -> str:
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


@dataclass(frozen=True)
class Grid:
    """A table, for the terminal and for Markdown."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def titled(self, title: str) -> Grid:
        return replace(self, title=title)

    def markdown(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        table = "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )
        return f"### {self.title}\n\n{table}" if self.title else table

    def rich(self, title: str) -> Table:
        table = Table(title=self.title or title, title_justify="left")
        for name in self.head:
            table.add_column(name, overflow="fold")  # a figure cut short would be a wrong figure
        for row in self.rows:
            table.add_row(*row)
        return table


@dataclass(frozen=True)
class Section:
    """One claim's part of the report: what was measured, tables, what follows."""

    title: str
    intro: str
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...] = ()

    def markdown(self) -> str:
        plots = [f"![{figure.title}]({PLOTS}/{figure.name}.png)" for figure in self.figures]
        notes = ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        tables = [grid.markdown() for grid in self.grids]
        # Tables with titles are many: what follows from them comes first.
        body = [*notes, *tables] if any(grid.title for grid in self.grids) else [*tables, *notes]
        return "\n\n".join([f"## {self.title}", self.intro, *plots, *body])

    def show(self, console: Console) -> None:
        for grid in self.grids:
            console.print(grid.rich(self.title))
        for note in self.notes:
            console.print("• " + note.replace("**", ""), markup=False, highlight=False)


def outcomes(rounds: Sequence[Round], peer: str) -> list[Outcome]:
    """The rounds in which a peer succeeded."""
    return [found for r in rounds if isinstance(found := r.measured.get(peer), Outcome)]


@dataclass(frozen=True)
class Ratio:
    """Ours to theirs in one round."""

    speed: float
    batch_speed: float
    cpu: float


def ratios(rounds: Sequence[Round], ours: str, theirs: str) -> list[Ratio]:
    """One for each round in which both succeeded."""
    found = []
    for item in rounds:
        a, b = item.measured.get(ours), item.measured.get(theirs)
        if isinstance(a, Outcome) and isinstance(b, Outcome):
            found.append(Ratio(a.rate / b.rate, a.batch_rate / b.batch_rate, a.cpu_s / b.cpu_s))
    return found


def cpu_per_million(outcome: Outcome) -> float:
    return outcome.cpu_s / outcome.records * 1e6


def round_grid(rounds: Sequence[Round], ours: str, theirs: str) -> Grid:
    """A row a round and peer, with the ratio of the round on our row."""
    rows = []
    for number, item in enumerate(rounds, 1):
        ratio = ratios([item], ours, theirs)
        for peer, found in item.measured.items():
            shown = f"{ratio[0].speed:.2f}" if peer == ours and ratio else ""
            if isinstance(found, Outcome):
                speeds = [f"{found.wall_s:.2f}", f"{found.rate:,.0f}", f"{found.batch_rate:,.0f}"]
                cells = [*speeds, f"{cpu_per_million(found):.2f}", shown]
            else:
                cells = [f"failed: {found}", "", "", "", ""]
            rows.append((str(number), peer, *cells))
    return Grid(("round", "peer", "wall s", *_FIGURES, f"{ours} / {theirs}"), tuple(rows))


def summary_grid(rounds: Sequence[Round]) -> Grid:
    """Median, lowest and highest of each peer."""
    rows = []
    for peer in dict.fromkeys(name for item in rounds for name in item.measured):
        good = outcomes(rounds, peer)
        figures = [(o.rate, o.batch_rate, cpu_per_million(o)) for o in good]
        spreads = [Spread.of(values) for values in zip(*figures, strict=True)]
        cells = [s.show(digits) for s, digits in zip(spreads, (0, 0, 2), strict=False) if s]
        cells = cells or ["not measured"] * len(_FIGURES)
        rows.append((peer, good[0].version if good else "?", f"{len(good)} of {len(rounds)}", *cells))
    return Grid(("peer", "version", "rounds", *_FIGURES), tuple(rows))


def ratio_notes(rounds: Sequence[Round], ours: str, theirs: str) -> tuple[str, ...]:
    """The claim itself: how much faster, for how much CPU, with the spread over the rounds."""
    found = ratios(rounds, ours, theirs)
    speed, cpu = Spread.of([r.speed for r in found]), Spread.of([r.cpu for r in found])
    inside = Spread.of([r.batch_speed for r in found])
    if speed is None or inside is None or cpu is None:
        return (f"No round in which both {ours} and {theirs} succeeded: no ratio.",)
    over = f"median and range of {len(found)} of {len(rounds)} rounds"
    lines = [
        f"Records/s, {ours} / {theirs}: **{speed.show()}**, {over}.",
        f"Inside micro-batches, {ours} / {theirs}: {inside.show()}.",
        f"CPU time, {ours} / {theirs}: **{cpu.show()}**, {over}.",
    ]
    sums = {o.checksum for peer in (ours, theirs) for o in outcomes(rounds, peer)}
    same = "the same rows, value for value" if len(sums) == 1 else "DIFFERENT ROWS: the ratio means nothing"
    lines.append(f"Checksum over every column of every record: {same}.")
    return tuple(lines)


HEAD = "# Results\n\nEach part says which run measured it, and says only what that run measured."


def document(origin: str, sections: Sequence[Section], before: str = "") -> str:
    """All sections, each with its origin under its title; those of `before` that are not among them stay as they are."""
    parts = {}
    for text in before.split("\n## ")[1:]:
        title, _, body = text.partition("\n")
        parts[title] = f"## {title}\n{body.rstrip()}"
    for section in sections:
        title, body = section.markdown().split("\n\n", 1)
        parts[section.title] = f"{title}\n\n*{origin}*\n\n{body}"
    return "\n\n".join([HEAD, *parts.values()]) + "\n"


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
