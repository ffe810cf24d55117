"""The statements about dead letters: REPLAY, DISCARD, REOPEN, RECOVER; and a condition that stands alone."""

from __future__ import annotations

from typing import Any

from sqlglot.tokens import TokenType

from forebay.sql import ast
from forebay.sql.clauses import ClauseParser, is_word
from forebay.sql.faults import did_you_mean

LETTER_VERBS = ("REPLAY", "DISCARD", "REOPEN", "RECOVER")
_FORMS = {
    "REPLAY": "REPLAY DEAD LETTERS FROM source [WHERE …] [TO 'topic'] [PATCH '{…}'] [DRY RUN]",
    "DISCARD": "DISCARD DEAD LETTERS FROM source [WHERE …] [REASON '…'] [DRY RUN]",
    "REOPEN": "REOPEN DEAD LETTERS FROM source [WHERE …] [DRY RUN]",
    "RECOVER": "RECOVER DEAD LETTERS FROM source [DRY RUN]",
}
_CLAUSES = {
    "REPLAY": ("WHERE", "TO", "PATCH", "DRY"),
    "DISCARD": ("WHERE", "REASON", "DRY"),
    "REOPEN": ("WHERE", "DRY"),
    "RECOVER": ("DRY",),
}


class LetterParser(ClauseParser):
    """What follows REPLAY, DISCARD, REOPEN or RECOVER. The clauses come in one order, each once."""

    def dead_letters(self, verb: str) -> Any:
        form = f"write {_FORMS[verb]}"
        for word in ("DEAD", "LETTERS", "FROM"):
            self.expect_word(word, form)
        args: dict[str, Any] = {"this": self.name("the source"), "verb": verb.lower()}
        known = _CLAUSES[verb]
        if "WHERE" in known and self.word("WHERE"):
            args["where"] = self.condition()
        if "TO" in known and self.word("TO"):
            args["target"] = self._topic()
        if "PATCH" in known and self.word("PATCH"):
            args["patch"] = self._text("a JSON merge patch", "write PATCH '{\"price\": 0}'")
        if "REASON" in known and self.word("REASON"):
            args["reason"] = self._text("a reason", "write REASON 'test data'")
        if self.word("DRY"):
            self.expect_word("RUN", form)
            args["dry_run"] = True
        if self._curr:
            self._refuse_rest(verb, form)
        return ast.DeadLettersNode(**args)

    def condition(self) -> Any:
        """A condition on letters, to the end of its expression."""
        start = self._curr
        node = self._parse_disjunction() if start else None
        if node is None:
            self.fail(f"expected a condition{self._but_found()}", remedy="write WHERE error_kind = '…'")
        self.keep_text(node, start)
        return node

    def lone_condition(self) -> Any:
        node = self.condition()
        if self._curr:
            self.fail(
                f"unexpected '{self.shown(self._curr)}' after the condition", remedy="join conditions by AND"
            )
        return node

    def _topic(self) -> str:
        token = self._curr
        if not (token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or is_word(token)):
            self.fail(f"expected the name of a topic{self._but_found()}", remedy="write TO 'orders-repaired'")
        if not token.text:
            self.fail("the name of the topic is empty")
        self._advance()
        if self._curr.token_type in (TokenType.DASH, TokenType.DOT):
            self.fail("a topic's name with '-' or '.' in it stands in quotes", token, "write TO 'orders-2'")
        return str(token.text)

    def _text(self, what: str, remedy: str) -> str:
        text = self.text()
        if text is None:
            self.fail(f"expected {what} in quotes{self._but_found()}", remedy=remedy)
        return text

    def _refuse_rest(self, verb: str, form: str) -> None:
        guess = did_you_mean(self._curr.text, _CLAUSES[verb]) if is_word(self._curr) else None
        remedy = f"did you mean {guess}?" if guess and guess != self._curr.text.upper() else form
        self.fail(f"unexpected '{self.shown(self._curr)}' in {verb} DEAD LETTERS", remedy=remedy)
