"""Mirrors the checkpoint into the consumer group, behind the query's back and never ahead of it.

A commit that fails is retried; a newer position replaces an older one that is pending. So the group may be behind the
checkpoint for a while, but a query never waits for it. Each source has a thread of its own: one whose brokers are away
holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from forebay import threads
from forebay.backoff import Backoff
from forebay.connectors.contract import SourceCheckpoint, SourceConnector
from forebay.errors import CommitError, ForebayError, MissingAclError

log = logging.getLogger("forebay.commits")

RECOMMIT_S = 3600.0  # far below the shortest sensible offsets.retention.minutes: idle offsets do not expire

OnCommitError = Callable[[str, ForebayError | None], None]


class GroupCommitter:
    """Of a session. `on_error` hears of each failure of a source, and of None once it is over."""

    def __init__(self, on_error: OnCommitError) -> None:
        self._on_error = on_error
        self._sources: dict[str, _SourceCommitter] = {}
        self._lock = threading.Lock()

    def submit(self, source: str, connector: SourceConnector, checkpoint: SourceCheckpoint) -> None:
        """Commit this soon. The checkpoint must exist already."""
        with self._lock:
            if source not in self._sources:
                self._sources[source] = _SourceCommitter(source, self._on_error)
            self._sources[source].submit(connector, checkpoint)

    def forget(self, source: str) -> None:
        """Commit nothing more for this source."""
        with self._lock:
            found = self._sources.pop(source, None)
        if found is not None:
            found.close()

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; False when the time is over first."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            sources = list(self._sources.values())
        return all(source.flush(deadline - time.monotonic()) for source in sources)

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for what is pending, for so long at most; then stop."""
        self.flush(timeout_s)
        for source in list(self._sources):
            self.forget(source)


class _SourceCommitter:
    """The newest position of one source, and the thread that commits it."""

    def __init__(self, source: str, on_error: OnCommitError) -> None:
        self._source = source
        self._on_error = on_error
        self._newest: tuple[SourceConnector, SourceCheckpoint] | None = None
        self._done_at: float | None = None  # when the newest was committed; None while it is pending
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threads.keep_running(f"forebay-commits-{source}", self._run, self._closed)

    def submit(self, connector: SourceConnector, checkpoint: SourceCheckpoint) -> None:
        with self._changed:
            self._newest, self._done_at = (connector, checkpoint), None
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending(), max(0.0, timeout_s))

    def close(self, timeout_s: float = 10.0) -> None:
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _pending(self) -> bool:
        if self._newest is None:
            return False
        return self._done_at is None or time.monotonic() - self._done_at > RECOMMIT_S

    def _run(self) -> None:
        backoff = Backoff()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or self._pending(), 60.0)
                newest = self._newest
            if self._closed.is_set():
                return
            if newest is None or not self._pending():
                continue
            if self._commit(*newest):
                backoff.over()
            else:
                self._closed.wait(backoff.failed())

    def _commit(self, connector: SourceConnector, checkpoint: SourceCheckpoint) -> bool:
        try:
            connector.commit_offsets(checkpoint)
        except Exception as error:
            # Whatever it is, the next try may succeed, and the offsets must not stand still in silence.
            known = error if isinstance(error, ForebayError) else CommitError(f"commit failed: {error!r}")
            what = f"; {known.remedy}" if isinstance(known, MissingAclError) else ""
            log.warning("source '%s': %s%s", self._source, known.message, what)
            self._on_error(self._source, known)
            return False
        self._on_error(self._source, None)
        with self._changed:
            if self._newest is not None and self._newest[1] is checkpoint:
                self._done_at = time.monotonic()
            self._changed.notify_all()
        return True
