"""Waiting for something that is away: 100 ms, then twice as long each time, up to 30 s (F025, appendix D)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from forebay.errors import ForebayError, UnreachableError

T = TypeVar("T")
MIN_MS = 100
MAX_MS = 30_000


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
    wait = MIN_MS / 1000
    while True:
        try:
            return attempt()
        except UnreachableError as error:
            if deadline is not None and time.monotonic() + wait > deadline:
                raise
            if notify:
                notify(error, wait)
            time.sleep(wait)
            wait = min(wait * 2, MAX_MS / 1000)
