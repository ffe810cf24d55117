"""What goes wrong while parsing, with its place, on the way to becoming an error of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlglot.errors import ParseError


class Fault(ParseError):
    """A ParseError, so that sqlglot may backtrack from it, which knows its offsets and a remedy."""

    def __init__(
        self, message: str, start: int, end: int, remedy: str = "", *, unsupported: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end
        self.remedy = remedy
        self.unsupported = unsupported


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one is a misspelling of, if any."""
    close = difflib.get_close_matches(word.upper(), list(known), n=1, cutoff=0.7)
    return close[0] if close else None
