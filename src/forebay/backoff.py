"""How long to wait after a failure: twice as long each time, up to a limit. All retries go by this.

What is away is waited for 100 ms, then up to 30 s; pools and agents have limits of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from forebay import patience
from forebay.errors import ForebayError, UnreachableError

T = TypeVar("T")
MIN_MS = 100
MAX_MS = 30_000
MOST_DOUBLINGS = 62  # a million failures must not make a number of a million bits


def wait_ms(failures: int, first_ms: int = MIN_MS, longest_ms: int = MAX_MS) -> int:
    """After so many failures in a row, one at least."""
    return int(min(longest_ms, first_ms * 2 ** min(failures - 1, MOST_DOUBLINGS)))


class Backoff:
    """For a caller that must not sleep: `until` says from when on another try is due."""

    def __init__(self) -> None:
        self.until = 0.0
        self._failures = 0

    def failed(self) -> float:
        """Note a failure; returns how long to wait now."""
        self._failures += 1
        wait_s = wait_ms(self._failures) / 1000
        self.until = time.monotonic() + wait_s
        return wait_s

    def over(self) -> None:
        self.until, self._failures = 0.0, 0


def with_backoff(
    attempt: Callable[[], T],
    *,
    timeout_s: float | None,
    notify: Callable[[ForebayError, float], None] | None = None,
    on: type[ForebayError] = UnreachableError,
    tries: int | None = None,
) -> T:
    """Try until it works. Blocks the thread for as long as the timeout says; None is without end.

    Only what is `on` is waited for: wrong credentials or a wrong topic fail at once. `notify` hears of each failure and
    of the wait that follows. When the time or the tries are used up, the last failure is raised.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    backoff = Backoff()
    with patience.waiting():
        for number in count(1):
            try:
                return attempt()
            except on as error:
                wait_s = backoff.failed()
                if number == tries or (deadline is not None and backoff.until > deadline):
                    raise
                if notify:
                    notify(error, wait_s)
                time.sleep(wait_s)
    raise AssertionError  # the count has no end
