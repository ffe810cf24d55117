"""How many letters a second: a token bucket, shared by all tasks of a source.

The bucket holds one second's worth: micro-batches ask in bursts, and a smaller one
would grant them less than the rate.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 0.1  # a bucket that is empty is asked no sooner: it loses nothing meanwhile, and asking costs


@dataclass(frozen=True)
class Bucket:
    """Tokens at a moment. Never more than `rate` × seconds + `rate` are granted in any stretch of time."""

    rate: int  # tokens a second, and how many it holds
    tokens: float
    at: float  # seconds

    @classmethod
    def full(cls, rate: int, now: float) -> Bucket:
        return cls(rate, float(rate), now)

    def take(self, wanted: int, now: float) -> tuple[int, Bucket]:
        """How many of the tokens wanted are granted, and what is left."""
        # A clock that was set back must neither take tokens away nor give the same second twice.
        gained = max(0.0, now - self.at) * self.rate
        tokens = min(float(self.rate), self.tokens + gained)
        granted = min(wanted, int(tokens))
        return granted, Bucket(self.rate, tokens - granted, max(now, self.at) if gained else self.at)


class SharedLimiter:
    """A bucket in a file, under a lock: whichever process asks, on this machine."""

    def __init__(self, path: Path, rate: int, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._rate = rate
        self._clock = clock
        self._known: Bucket | None = None

    def most(self) -> int:
        """At most so many would be granted now: asks nobody, because the others only take."""
        if self._known is None:
            return self._rate
        return self._known.take(self._rate, self._clock())[0]

    def worth_asking(self) -> int:
        """The same, but none while the bucket fills up again: a letter now and then costs more than many at once."""
        known = self._known
        if known is not None and known.tokens < 1 and self._clock() - known.at < PATIENCE_S:
            return 0
        return self.most()

    def take(self, wanted: int) -> int:
        """So many of the tokens wanted are granted, for good."""
        if wanted <= 0 or self.most() == 0:
            return 0
        # Not forebay.locks, which costs four times as much as all of this: see docs/decisions/0021.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            granted, self._known = self._read(handle).take(wanted, self._clock())
            state = json.dumps([self._known.rate, self._known.tokens, self._known.at]).encode()
            os.pwrite(handle, state, 0)
            os.ftruncate(handle, len(state))
        finally:
            os.close(handle)
        return granted

    def _read(self, handle: int) -> Bucket:
        now = self._clock()
        try:
            rate, tokens, at = json.loads(os.pread(handle, 4096, 0))
        except ValueError:
            return Bucket.full(self._rate, now)  # new, or its writer was killed
        if at > now + 1:
            return Bucket(
                self._rate, 0.0, now
            )  # the clock was set back: not to wait until it is that late again
        return Bucket(self._rate, min(tokens, self._rate) if rate == self._rate else float(self._rate), at)
