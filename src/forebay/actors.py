"""Who does something, for the audit log: the user of this process, unless somebody acts for another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_actor: ContextVar[str | None] = ContextVar("forebay_actor", default=None)


def current() -> str:
    """The actor of this thread."""
    given = _actor.get()
    if given is not None:
        return given
    import getpass

    try:
        return f"user: {getpass.getuser()}"
    except (OSError, KeyError, ImportError):  # a process of a user who has no name
        return "user"


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """What this thread does in this block is done for this actor."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)
