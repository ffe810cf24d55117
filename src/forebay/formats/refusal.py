"""Why one value is not taken, with the way to it and a glimpse of what was found."""

from __future__ import annotations

from typing import Any

from forebay.formats.contract import RefusalKind

SHOWN = 40
"""Characters of a value that a message shows: enough to recognise it, too few to leak a payload."""


class Number(str):
    """A number as it was written. Kept as text where a float would lose digits."""

    __slots__ = ()


MINUS_ZERO = Number("-0")
"""What JSON's `-0` is read as, always this object: a FLOAT and a DOUBLE keep its sign, which an int has not."""


class RefusedError(Exception):
    """One record is not taken. Containers add their step of the path while it passes through them."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.path = ""

    def enter(self, step: str) -> None:
        """Put one step (`.name`, `[3]`, `['key']`) in front of the path."""
        self.path = step + self.path

    @property
    def message(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.reason}" if self.path else self.reason


def malformed(reason: str) -> RefusedError:
    return RefusedError(RefusalKind.MALFORMED_PAYLOAD, reason)


def mismatch(reason: str) -> RefusedError:
    return RefusedError(RefusalKind.SCHEMA_MISMATCH, reason)


def unfit(expected: str, value: Any) -> RefusedError:
    """The value is not what its column's type takes."""
    return RefusedError(RefusalKind.TYPE_CONVERSION, f"expected {expected}, found {describe(value)}")


def check_present(payload: bytes | None) -> None:
    """A format that has no notation for "no record" refuses tombstones and empty payloads."""
    if payload is None:
        raise malformed("the payload is null (a tombstone)")
    if not payload:
        raise malformed("the payload is empty")


def shorten(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def describe(value: Any) -> str:
    """A value in words. Containers are only counted: printing one may recurse without end."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number() | int() | float():
            return f"number {shorten(str(value))}"
        case str():
            return f"string {shorten(value)!r}"
        case list():
            return f"an array of {len(value)}"
        case dict():
            return f"an object of {len(value)} fields"
        case _:
            return f"a value of type {type(value).__name__}"
