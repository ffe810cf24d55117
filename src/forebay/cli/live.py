"""Lines that change in place: fitted to the terminal, and never torn by what the log says meanwhile."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

GAP = 2  # columns between two cells


class Cell(NamedTuple):
    """A part of a line. Where the terminal is narrow, the cells of the highest `spare` are left out first."""

    text: str
    style: str = ""
    spare: int = 0  # 0: always shown
    right: bool = False  # aligned to the right


def fitted(rows: Sequence[Sequence[Cell]], width: int | None) -> Text:
    """A line a row, cells below one another. All rows have the same cells. None is any width."""
    places = range(len(rows[0]) if rows else 0)
    widths = [max(len(row[place].text) for row in rows) for place in places]
    kept = [place for place in places if widths[place]]
    while width is not None and _total(widths, kept) > width:
        spare = max((rows[0][place].spare for place in kept), default=0)
        if not spare:
            break
        kept = [place for place in kept if rows[0][place].spare < spare]
    text = Text()
    for number, row in enumerate(rows):
        line = Text(" " * GAP).join(_padded(row[place], widths[place]) for place in kept)
        line.rstrip()
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        text.append("\n" if number else "").append_text(line)
    return text


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + GAP * max(0, len(kept) - 1)


def _padded(cell: Cell, width: int) -> Text:
    return Text(cell.text.rjust(width) if cell.right else cell.text.ljust(width), cell.style)


class StderrHandler(logging.Handler):
    """Writes to what `sys.stderr` is now: a live line puts its own there, which prints above it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)
