"""The threads that let the tables of views that group follow their groups: one looks what is due, others do it.

A view whose table takes long has its own thread meanwhile, so the tables of the others are not late for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from forebay import threads

log = logging.getLogger("forebay.groups")

LOOK_S = 0.1
AT_ONCE = 4  # tables that are published at a time: each holds the rows that it writes
FOLDS_AT_ONCE = 2  # a fold is never urgent, and reads and writes much


class FollowingView(Protocol):
    """What is asked of a view."""

    @property
    def name(self) -> str: ...

    def publish_at(self) -> float | None:
        """When its table is to be brought up to date, by the monotonic clock; None if there is nothing to publish."""

    def publish(self) -> None: ...

    def has_to_fold(self) -> bool: ...

    def fold(self) -> None: ...


class Publishing:
    """Of one session. `views` are those that run now."""

    def __init__(self, views: Callable[[], Iterable[FollowingView]]) -> None:
        self._views = views
        self._closed = threading.Event()
        self._publishing: dict[str, threading.Thread] = {}
        self._folding: dict[str, threading.Thread] = {}
        self._thread = threads.keep_running("forebay-publish", self._run, self._closed)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            now, views = time.monotonic(), list(self._views())
            due = [(at, view) for view in views if (at := view.publish_at()) is not None and at <= now]
            for _, view in sorted(due, key=lambda each: each[0]):
                _begin(self._publishing, AT_ONCE, view.name, "forebay-publish-table", view.publish)
            for view in views:
                if view.has_to_fold():
                    _begin(self._folding, FOLDS_AT_ONCE, view.name, "forebay-fold", view.fold)

    def close(self) -> None:
        """Returns when nobody works on a table any more."""
        self._closed.set()
        for thread in (self._thread, *self._publishing.values(), *self._folding.values()):
            thread.join()


def _begin(
    busy: dict[str, threading.Thread], most: int, view: str, thread: str, work: Callable[[], None]
) -> None:
    """Unless somebody is at it, or too many are at work."""
    for name in [name for name, each in busy.items() if not each.is_alive()]:
        del busy[name]
    if view not in busy and len(busy) < most:
        busy[view] = threads.start(thread, work, lambda error: None)
