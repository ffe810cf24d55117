"""On the driver: the marks of keys that have watermarks of their own, kept with each batch of a shared read."""

from __future__ import annotations

import time
from pathlib import Path

from forebay.connectors.contract import Offsets, SourceConnector
from forebay.runtime.read_answer import BatchAnswer
from forebay.source.key_marks import KeyMarks, KeyMarksFile
from forebay.source.stream import EventTime
from forebay.source.watermarks import Marks


class KeyedRead:
    """Of one read. A key's idle time counts only between batches after which there was nothing left to read."""

    def __init__(self, path: Path, connector: SourceConnector, event_time: EventTime) -> None:
        reached = connector.reached
        self._file = KeyMarksFile(path, lambda one, other: reached(one, other) and reached(other, one))
        self._event_time = event_time
        self._read_to_the_end_at: float | None = (
            None  # when the last batch ended, if nothing was left to read
        )

    def marks(self, position: Offsets) -> KeyMarks:
        """Those of keys where a batch begins."""
        return self._file.at(position)

    def stand_still(self) -> None:
        """Until the next batch no key's idle time counts: reading is paused, or has trouble."""
        self._read_to_the_end_at = None

    def remember(self, answer: BatchAnswer, *, all_read: bool) -> None:
        """Before a batch is committed. One that is repeated has the marks of where it begins, as the first time."""
        start, end, now = answer.header.start, answer.header.end, time.monotonic()
        passed_ms = 0 if self._read_to_the_end_at is None else int((now - self._read_to_the_end_at) * 1000)
        self._read_to_the_end_at = now if all_read else None
        watermark_ms = Marks.at(end).watermark_ms
        before = self._file.at(start)
        after = before.after(
            answer.keys,
            passed_ms,
            self._event_time.idle_ms,
            None if watermark_ms is None else watermark_ms * 1000,
        )
        self._file.write(start, before, end, after)
