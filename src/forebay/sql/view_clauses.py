"""What may follow a view's query: EMIT, ALLOW LATENESS, LATE DATA TO, in any order.

They are taken off the end of the tokens before the query is parsed: it would read EMIT as the alias of its last table or
as the unit of its last interval.
"""

from __future__ import annotations

from typing import Any

from sqlglot.tokens import TokenType

from forebay.sql import ast
from forebay.sql.clauses import is_word
from forebay.sql.intervals import EXAMPLE
from forebay.sql.window_tables import WindowTableParser

_EMITS = {("EMIT", "CHANGES"): "changes", ("EMIT", "ON", "WINDOW", "CLOSE"): "window_close"}
EMIT_HINT = "the clause is EMIT CHANGES or EMIT ON WINDOW CLOSE"
LATE_HINT = "write LATE DATA TO a name for a table, or LATE DATA TO DEAD LETTERS"


class ViewClauseParser(WindowTableParser):
    """Reads the clauses from the last to the first."""

    _tokens: Any

    def cut_clauses(self) -> tuple[str | None, Any]:
        """EMIT, and the clauses about late rows as one node; None where there is none."""
        emit: str | None = None
        late: dict[str, Any] = {}
        while True:
            last = self._tokens[-1] if self._tokens else None
            if (found := self._cut_emit()) is not None:
                self._only_once(emit, "EMIT", last)
                emit = found
            elif (target := self._cut_late_data()) is not None:
                self._only_once(late.get("target"), "LATE DATA TO", last)
                late["target"] = target
            elif (lateness := self._cut_lateness()) is not None:
                self._only_once(late.get("lateness"), "ALLOW LATENESS", last)
                late["lateness"] = lateness
            else:
                break
        if not late:
            return emit, None
        target = late.get("target", {})
        return emit, ast.LateClauses(lateness=late.get("lateness"), **target)

    def _only_once(self, before: Any, what: str, token: Any) -> None:
        if before is not None:
            self.fail(f"{what} is given twice", token, "remove one of the two")

    def _cut_emit(self) -> str | None:
        for words, emit in _EMITS.items():
            if self._ends_with(*words):
                self._cut(len(words))
                return emit
        return None

    def _cut_late_data(self) -> dict[str, Any] | None:
        if self._ends_with("LATE", "DATA", "TO", "DEAD", "LETTERS"):
            self._cut(5)
            return {"letters": True}
        if self._ends_with("LATE", "DATA", "TO"):
            self.fail("LATE DATA TO what?", self._tokens[-1], LATE_HINT)
        if not self._ends_with("LATE", "DATA", "TO", None):
            return None
        here = self._index
        self._advance(len(self._tokens) - 1 - here)
        table = self.name("the table of late rows")
        self._retreat(here)
        self._cut(4)
        return {"table": table}

    def _cut_lateness(self) -> Any:
        """What follows the last ALLOW LATENESS is an interval, to the end."""
        tokens = self._tokens
        for at in range(len(tokens) - 2, self._index - 1, -1):
            if not self._words_at(at, "ALLOW", "LATENESS"):
                continue
            here = self._index
            self._advance(at + 2 - here)
            first = self._curr
            if not first or (not is_word(first) and first.token_type != TokenType.STRING):
                self.fail("ALLOW LATENESS for how long?", first or tokens[-1], EXAMPLE)
            interval = self._parse_disjunction()
            if interval is None or self._curr:
                self.fail(f"expected an interval after ALLOW LATENESS{self._but_found()}", remedy=EXAMPLE)
            interval.meta["span"] = (first.start, tokens[-1].end + 1)
            self._retreat(here)
            self._cut(len(tokens) - at)
            return interval
        return None

    def _ends_with(self, *words: str | None) -> bool:
        """Whether the tokens end in these words; None is any token."""
        at = len(self._tokens) - len(words)
        return at >= self._index and self._words_at(at, *words)

    def _words_at(self, at: int, *words: str | None) -> bool:
        found = self._tokens[at : at + len(words)]
        return len(found) == len(words) and all(
            word is None or (is_word(token) and token.text.upper() == word)
            for word, token in zip(words, found, strict=True)
        )

    def _cut(self, count: int) -> None:
        kept: list[Any] = list(self._tokens)[:-count]
        self._tokens = kept
        self._tokens_size = len(kept)
        self._advance(0)
