"""A replay in the background: it can be looked at, and stopped between two transactions."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

from forebay import threads
from forebay.deadletter.desk_views import ReplayStatus
from forebay.deadletter.entry import Entry
from forebay.deadletter.index import IndexRow
from forebay.deadletter.letterbox import Letterbox, LetterReader, Progress, silent
from forebay.deadletter.masked import LetterMask
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.owners import Owner
from forebay.deadletter.positions import letters_at
from forebay.deadletter.repair import Repair
from forebay.deadletter.replay import Replayer, ReplayReport
from forebay.errors import ForebayError

log = logging.getLogger("forebay.deadletter")

Batches = Callable[[], Iterator[Sequence[IndexRow]]]


class IndexedReader(LetterReader):
    """Reads chosen letters from where the index has them, and no others."""

    def __init__(self, owner: Owner, outcomes: Outcomes, batches: Batches, mask: LetterMask | None) -> None:
        super().__init__(owner.name, Letterbox(owner.place, owner.options), outcomes, owner.key, mask)
        self._owner = owner
        self._batches = batches

    def entries(self, progress: Progress = silent) -> Iterator[Entry]:
        options = self.place.options(self._owner.options)
        for rows in self._batches():
            for _, letter in letters_at(self.place, options, rows):
                # The catalog's word, not the index's: somebody else may have been first.
                yield Entry(letter, self._outcomes.of(self.key, letter), self.mask)


class BackgroundReplay:
    """One replay of letters of one owner. `held` is the owner's lock; it is let go at the end.

    `readers` are those of the letters that go to each topic. One topic is done after another: a transaction has one target.
    """

    def __init__(
        self,
        owner: Owner,
        outcomes: Outcomes,
        readers: Mapping[str, IndexedReader],
        total: int,
        *,
        actor: str,
        repair: Repair | None,
        rate: float | None,
        held: ExitStack,
        settled: Callable[[], None],
        fates: Callable[[str, Sequence[str]], Mapping[str, int]],
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._owner, self._outcomes, self._readers = owner, outcomes, readers
        self._target, self._total, self._actor = ", ".join(readers), total, actor
        self._repair, self._rate, self._held = repair, rate, held
        self._settled, self._fates = settled, fates
        self._report = ReplayReport(owner.name, self._target)
        self._stop, self._ended = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._began, self._ended_ms = _now(), 0
        self._last: tuple[float, Mapping[str, int]] = (0.0, {})

    def start(self) -> None:
        threads.start(f"forebay-replay-{self.id}", self._run, self._failed, logged=False)

    def _run(self) -> None:
        try:
            for target, reader in self._readers.items():
                replayer = Replayer(reader, self._outcomes, self._owner.options, target, self._actor)
                try:
                    replayer.run(repair=self._repair, rate=self._rate, stop=self._stop, report=self._report)
                finally:
                    replayer.close()
        finally:
            self._held.close()
            self._settled()
            self._ended_ms = _now()
            log.info(
                "event=letters_replayed source=%s target=%s sent=%d found=%d left=%d failed=%d actor=%s",
                self._owner.name, self._target, self._report.sent, self._report.found, self._report.left,
                self._report.problem_count, self._actor,
            )  # fmt: skip
        self._ended.set()

    def _failed(self, error: Exception) -> None:
        self._error = error
        self._ended.set()

    def stop(self) -> None:
        self._stop.set()

    def wait(self, timeout: float | None = None) -> ReplayStatus:
        self._ended.wait(timeout)
        return self.status

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> ReplayStatus:
        report, error = self._report, self._error
        done = report.sent + report.problem_count + report.left + report.not_open
        state: Literal["running", "stopping", "stopped", "done", "failed"] = "running"
        if self._ended.is_set():
            stopped = self._stop.is_set() and done < self._total
            state = "failed" if error else "stopped" if stopped else "done"
        elif self._stop.is_set():
            state = "stopping"
        problem = error.message if isinstance(error, ForebayError) else (str(error) if error else None)
        return ReplayStatus(
            id=self.id,
            owner=self._owner.key,
            source=self._owner.name,
            actor=self._actor,
            target=self._target,
            state=state,
            total=self._total,
            done=done,
            sent=report.sent,
            failed=report.problem_count,
            left=report.left,
            problems=tuple(report.problems[:20]),
            error=problem,
            remedy=error.remedy if isinstance(error, ForebayError) else None,
            began_ms=self._began,
            ended_ms=self._ended_ms or None,
            fates=self._fates_now(),
        )

    def _fates_now(self) -> Mapping[str, int]:
        """What became of what was sent. Asked once a second at most: it may be many."""
        asked, found = self._last
        if time.monotonic() - asked > 1.0 and self._report.replay_ids:
            found = Counter(self._fates(self._owner.key, list(self._report.replay_ids)))
            self._last = (time.monotonic(), found)
        return found


def _now() -> int:
    return int(time.time() * 1000)
