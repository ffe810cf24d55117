"""Waiting for something that is away: 100 ms, then twice as long each time, up to 30 s."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from forebay import patience
from forebay.errors import ForebayError, UnreachableError

T = TypeVar("T")
MIN_MS = 100
MAX_MS = 30_000


class Backoff:
    """For a caller that must not sleep: `until` says from when on another try is due."""

    def __init__(self) -> None:
        self.until = 0.0
        self._wait_s = MIN_MS / 1000

    def failed(self) -> float:
        """Note a failure; returns how long to wait now."""
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * 2, MAX_MS / 1000)
        self.until = time.monotonic() + wait_s
        return wait_s

    def over(self) -> None:
        self.until, self._wait_s = 0.0, MIN_MS / 1000


def with_backoff(
    attempt: Callable[[], T],
    *,
    timeout_s: float | None,
    notify: Callable[[ForebayError, float], None] | None = None,
) -> T:
    """Try until it works, waiting 100 ms, then twice as long each time, up to 30 s.

    Only an unreachable broker is waited for; wrong credentials or a wrong topic fail at once. `notify`
    hears of each failure and of the wait that follows. With a timeout, the last failure is raised.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    backoff = Backoff()
    with patience.waiting():
        while True:
            try:
                return attempt()
            except UnreachableError as error:
                wait_s = backoff.failed()
                if deadline is not None and backoff.until > deadline:
                    raise
                if notify:
                    notify(error, wait_s)
                time.sleep(wait_s)
