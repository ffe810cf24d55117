"""What all errors have in common; the tree of them is in `errors.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Position:
    """Where in a statement something is wrong: line and column count from 1."""

    line: int
    column: int
    length: int = 1


class ForebayError(Exception):
    """Base of all. `remedy` is one line that says what to do next."""

    code: ClassVar[str] = "FB0000"
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    default_remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, remedy: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


def _rebuild(cls: type[ForebayError], message: str, state: dict[str, Any]) -> ForebayError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


def caret(statement: str, position: Position) -> list[str]:
    """The line of a statement that a position is in, and a mark below it."""
    lines = statement.splitlines()
    if not 1 <= position.line <= len(lines):
        return []
    line = lines[position.line - 1]
    gutter = f"  {position.line} | "
    # Tabs keep their width under the caret only when they are repeated there.
    lead = "".join("\t" if char == "\t" else " " for char in line[: position.column - 1])
    return [gutter + line, " " * (len(gutter) - 2) + "| " + lead + "^" * max(1, position.length)]


def all_errors() -> dict[str, type[ForebayError]]:
    """Every error by its code."""
    found: dict[str, type[ForebayError]] = {}
    stack: list[type[ForebayError]] = [ForebayError]
    while stack:
        cls = stack.pop()
        found[cls.code] = cls
        stack.extend(cls.__subclasses__())
    return found


_CODE = re.compile(r"\b(FB\d{4}): ([^\n]*)(?:\n\s*remedy: ([^\n]*))?")


def from_text(text: str) -> ForebayError | None:
    """The error that Spark passed on as text, if one of ours is in there.

    Spark flattens a Python exception into the message of a JVM exception; the code at its start is
    what survives.
    """
    match = _CODE.search(text)
    if not match:
        return None
    cls = all_errors().get(match[1])
    return cls(match[2], remedy=match[3] or "") if cls else None
