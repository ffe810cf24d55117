"""Somebody waits in front of a terminal: for how long at most, and what is shown meanwhile.

A command that a person typed sets this for itself (`waited_for_by`). What runs in threads of its own, such as the queries
of views, has nobody who waits, and keeps trying for as long as its options say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE_S = 5.0  # a person waits for the answer


class Person:
    """`show` gets what is being waited for, and None when that is over."""

    def __init__(self, show: Callable[[str | None], None], seconds: float = PATIENCE_S) -> None:
        self.seconds = seconds
        self._show = show
        self._lock = threading.Lock()
        self._waits = 0
        self._shown: str | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Waits may be nested: what is shown stays until the outermost one is over."""
        with self._lock:
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1
                if not self._waits and self._shown is not None:
                    self._shown = None
                    self._show(None)

    def say(self, what: str) -> None:
        with self._lock:
            if self._waits and what != self._shown:
                self._shown = what
                self._show(what)


def _nothing(what: str | None) -> None:
    pass


_NOBODY = Person(_nothing, float("inf"))
_person: ContextVar[Person] = ContextVar("forebay-person", default=_NOBODY)


@contextmanager
def waited_for_by(person: Person) -> Iterator[None]:
    """What happens in this block, in this thread, is waited for by somebody."""
    before = _person.set(person)
    try:
        yield
    finally:
        _person.reset(before)


def at_most(seconds: float) -> float:
    """So long, but no longer than a person waits."""
    return min(seconds, _person.get().seconds)


def somebody() -> bool:
    """Whether a person waits, who is shown what is waited for: then nothing need be logged about it."""
    return _person.get() is not _NOBODY


def say(what: str) -> None:
    """Name what is being waited for, within `waiting()`."""
    _person.get().say(what)


@contextmanager
def waiting() -> Iterator[None]:
    with _person.get().waiting():
        yield
