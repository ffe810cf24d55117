"""Heavy partitions: those so far behind that their records would keep every worker from everybody else's.

Such a partition is given a bounded number of workers, until it is at half of the lag that made it heavy: one tenant's
flood must not make all others wait for it. Where every partition is heavy none is: there is nobody to make room for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

K = TypeVar("K")


def heavy(lags: Mapping[K, int | None], high: int, before: Collection[K]) -> set[K]:
    """Which of these are heavy now, given those that were; a lag that is not known yet is none."""
    found = {
        key for key, lag in lags.items() if lag is not None and lag > (high // 2 if key in before else high)
    }
    return found if len(found) < len(lags) else set()
