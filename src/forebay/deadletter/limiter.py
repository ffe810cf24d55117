"""How many letters a second: a token bucket, shared by all tasks of a source.

The bucket holds one second's worth: micro-batches ask in bursts, and a smaller one
would grant them less than the rate. The tasks of a shared read each have a share of it (`shares`), since they may run on
machines that share no file.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forebay.files import write_whole

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


def shares(bucket: Bucket, tasks: int) -> list[Bucket]:
    """The bucket divided among tasks that run at a time, in whole tokens; the first ones have what is left over."""
    rate, more = divmod(bucket.rate, tasks)
    whole = int(bucket.tokens)
    tokens, spare = divmod(whole, tasks)
    found = [
        Bucket(rate + (number < more), float(tokens + (number < spare)), bucket.at) for number in range(tasks)
    ]
    first = found[0]
    # Part of a token would be lost with every batch, and of a low rate all of them.
    return [
        Bucket(first.rate, min(float(first.rate), first.tokens + bucket.tokens - whole), first.at),
        *found[1:],
    ]


class Limiter(Protocol):
    """Who grants letters."""

    def worth_asking(self) -> int:
        """At most so many would be granted now; none while it is too soon to ask."""
        ...

    def take(self, wanted: int) -> int:
        """So many of the tokens wanted are granted, for good."""
        ...


class TaskLimiter:
    """A task's own share of the bucket."""

    def __init__(self, share: Bucket, clock: Callable[[], float] = time.time) -> None:
        self._bucket = share
        self._clock = clock

    def worth_asking(self) -> int:
        """None while the bucket fills up again: a letter now and then costs more than many at once."""
        now = self._clock()
        if self._bucket.tokens < 1 and now - self._bucket.at < PATIENCE_S:
            return 0
        return self._bucket.take(self._bucket.rate, now)[0]

    def take(self, wanted: int) -> int:
        if wanted <= 0:
            return 0
        granted, self._bucket = self._bucket.take(wanted, self._clock())
        return granted

    def left(self) -> Bucket:
        """What was not needed by now, which is to be given back."""
        return self._bucket.take(0, self._clock())[1]


class SharedLimiter:
    """A bucket in a file, under a lock: whichever process plans a batch, on this machine."""

    def __init__(self, path: Path, rate: int, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._rate = rate
        self._clock = clock

    def lend(self) -> Bucket:
        """All that is there now, for tasks to share. What they have left of it is to be given back."""
        # Not forebay.locks, which costs four times as much as all of this: see docs/decisions/0021.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            _, found = self._read(handle).take(0, self._clock())
            state = json.dumps([found.rate, 0.0, found.at]).encode()
            os.pwrite(handle, state, 0)
            os.ftruncate(handle, len(state))
        finally:
            os.close(handle)
        return found

    def give_back(self, left: Sequence[Bucket]) -> None:
        """What the tasks of a batch have left of what was lent to them, each when it ended: that is the bucket now."""
        at = min(
            self._clock(), max(bucket.at for bucket in left)
        )  # a machine's clock may be ahead of this one's
        tokens = sum(bucket.take(0, at)[1].tokens for bucket in left)
        write_whole(self._path, json.dumps([self._rate, tokens, at]).encode(), durable=False)

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
