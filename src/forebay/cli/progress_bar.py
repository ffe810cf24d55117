"""A bar for what takes longer than two seconds; nothing for what does not."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from forebay.cli.output import words

QUIET_S = 2.0
LINE_EVERY_S = 10.0  # without a terminal


class Waiting:
    """Hears how far something has got, and shows it on stderr when it takes long."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._said = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began < QUIET_S:
            return
        if not words.is_terminal:
            if now - self._said >= LINE_EVERY_S:
                self._said = now
                words.print(f"{self._what}: {done:,} of {total:,}", highlight=False)
            return
        if self._bar is None:
            columns = (
                TextColumn(self._what),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=words, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=total)
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)
