"""Who follows which view in this process: SUBSCRIBE of a session or a program, and the tails of the dashboard."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_counts: Counter[str] = Counter()


@contextmanager
def following(view: str) -> Iterator[None]:
    """Counted while it is followed. `view` names it among all homes: the root of its files."""
    with _lock:
        _counts[view] += 1
    try:
        yield
    finally:
        with _lock:
            _counts[view] -= 1
            if _counts[view] <= 0:
                del _counts[view]


def followed() -> dict[str, int]:
    """How many follow each view that somebody follows."""
    with _lock:
        return dict(_counts)
