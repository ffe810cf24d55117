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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

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
    """A bucket in a file, under a lock: whichever process plans a batch, on this machine.

    Reads of a source that run at a time each have a loan: a part of the rate, and of the tokens no more than that rate
    fills in a second. What is lent and what is left in the file add up to the one bucket, at every moment.
    """

    def __init__(self, path: Path, rate: int, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._rate = rate
        self._clock = clock

    def lend(self, who: str = "", reads: int = 1) -> Bucket:
        """A part of what is there now, one of so many, for tasks to share. What they have left is to be given back.

        All of it for one who is alone. Whoever comes while others have all of it is lent nothing, this once. `who` is
        the read, and the number of its process behind a dot; what it was lent before, and did not give back, is gone.
        """
        with self._state() as state:
            state.loans = {name: rate for name, rate in state.loans.items() if name != who and _runs(name)}
            free = state.free()
            rate = min(free.rate, -(-self._rate // reads))
            tokens = min(free.tokens, float(rate))
            state.tokens, state.at = free.tokens - tokens, free.at
            state.loans[who] = rate
            return Bucket(rate, tokens, free.at)

    def give_back(self, left: Sequence[Bucket], who: str = "") -> None:
        """What the tasks of a batch have left of what was lent to them, each when it ended."""
        with self._state() as state:
            if who not in state.loans:
                return  # it has been lent anew since
            free, rate = state.free(), state.loans.pop(who)
            # A machine's clock may be ahead of this one's. Since the last task ended, it is one bucket again.
            ended = min(free.at, max(bucket.at for bucket in left))
            tokens = sum(bucket.take(0, ended)[1].tokens for bucket in left)
            lent = Bucket(rate, min(tokens, float(rate)), ended).take(0, free.at)[1]
            state.tokens, state.at = free.tokens + lent.tokens, free.at

    @contextmanager
    def _state(self) -> Iterator[_LimiterState]:
        # Not forebay.locks, which costs four times as much as all of this: see docs/decisions/0021.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            state = self._read(os.pread(handle, 65_536, 0))
            yield state
            text = json.dumps([self._rate, state.tokens, state.at, state.loans]).encode()
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))
        finally:
            os.close(handle)

    def _read(self, text: bytes) -> _LimiterState:
        now = self._clock()
        try:
            rate, tokens, at, *loans = json.loads(text)
        except ValueError:
            return _LimiterState(self._rate, float(self._rate), now, now)  # new, or its writer was killed
        known = loans[0] if loans else {}  # the version before had none
        if at > now + 1:  # the clock was set back: not to wait until it is that late again
            return _LimiterState(self._rate, 0.0, now, now, known)
        whole = tokens if rate == self._rate else float(self._rate)
        return _LimiterState(self._rate, whole, at, now, known)


@dataclass
class _LimiterState:
    """What is in the file, at a moment."""

    rate: int
    tokens: float
    at: float
    now: float
    loans: dict[str, int] = field(default_factory=dict)  # rates

    def free(self) -> Bucket:
        """What is not lent, now."""
        rate = max(0, self.rate - sum(self.loans.values()))
        found = Bucket(rate, min(self.tokens, float(rate)), self.at).take(0, self.now)[1]
        # Also where nothing was free that could have grown: what others had then does not grow here once more.
        return replace(found, at=max(self.now, self.at))


def _runs(who: str) -> bool:
    """Whether a read's process is there; of one that is gone nothing comes back."""
    number = who.rpartition(".")[2]
    if not number.isdigit():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
