"""Mirrors the checkpoint into the consumer group, behind the query's back and never ahead of it.

A commit that fails is tried again; a newer position replaces an older one that still waits. So the
group may be behind the checkpoint for a while, but a query never waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from forebay.backoff import Backoff
from forebay.connectors.contract import SourceCheckpoint, SourceConnector
from forebay.errors import ForebayError

log = logging.getLogger("forebay.commits")

RECOMMIT_S = 3600.0  # far below the shortest sensible offsets.retention.minutes: idle offsets do not expire


@dataclass
class _Entry:
    connector: SourceConnector
    checkpoint: SourceCheckpoint
    done_at: float | None = None  # when it was committed; None while it waits


class GroupCommitter:
    """One thread for all sources of a session. `on_error` hears of a failure, and of None once it is over."""

    def __init__(self, on_error: Callable[[str, ForebayError | None], None]) -> None:
        self._on_error = on_error
        self._entries: dict[str, _Entry] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="forebay-commits", daemon=True)
        self._thread.start()

    def submit(self, source: str, connector: SourceConnector, checkpoint: SourceCheckpoint) -> None:
        """Commit this soon. The checkpoint must exist already."""
        with self._changed:
            self._entries[source] = _Entry(connector, checkpoint)
            self._changed.notify_all()

    def forget(self, source: str) -> None:
        with self._changed:
            self._entries.pop(source, None)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits; False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting(), timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        self.flush(timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _waiting(self) -> list[str]:
        now = time.monotonic()
        return [
            source
            for source, entry in self._entries.items()
            if entry.done_at is None or now - entry.done_at > RECOMMIT_S
        ]

    def _run(self) -> None:
        backoff = Backoff()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._waiting()), 60.0)
                if self._closed:
                    return
                todo = {source: self._entries[source] for source in self._waiting()}
            failed = [source for source, entry in todo.items() if not self._commit(source, entry)]
            if failed:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, backoff.failed())
            else:
                backoff.over()

    def _commit(self, source: str, entry: _Entry) -> bool:
        try:
            entry.connector.commit_offsets(entry.checkpoint)
        except ForebayError as error:
            log.warning("%s", error.message)
            self._on_error(source, error)
            return False
        self._on_error(source, None)
        with self._changed:
            entry.done_at = time.monotonic()
            self._changed.notify_all()
        return True
