"""The clauses of our statements: names, options, columns, WATERMARK, FORMAT, INCLUDE, ON ERROR.

A recursive descent on sqlglot's parser: its token cursor, its types and expressions, our grammar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

from forebay.masking import masked
from forebay.sql import ast
from forebay.sql.faults import Fault, did_you_mean
from forebay.sql.other_dialects import format_remedy, instead_of, metadata_remedy, type_remedy
from forebay.sql.quotes import backticked, is_double_quoted

_STRINGS = frozenset({TokenType.STRING, TokenType.RAW_STRING})
# Words that begin the next clause: met inside parentheses, one was not closed.
_CLAUSES = frozenset({"WITH", "FROM", "FORMAT", "USING", "INCLUDE", "ON", "AS"})
INCLUDED = ("KEY", "PARTITION", "OFFSET", "TIMESTAMP", "HEADERS")
_COLUMN_HINT = "a column is written: name TYPE [NOT NULL]"
_KEY_HINT = (
    "leave it out; columns from the record's key: 'key.format' = 'json', 'key.columns' = 'id'; the newest of each key: "
    "GROUP BY it in a view; a table's changes: FORMAT DEBEZIUM_JSON"
)


def is_word(token: Any) -> bool:
    """A bare word, keyword or not."""
    quoted_or_number = _STRINGS | {TokenType.IDENTIFIER, TokenType.NUMBER}
    return bool(token) and token.token_type not in quoted_or_number and token.text.isidentifier()


class ClauseParser(SparkParser):
    """Helpers end in a node or raise a Fault; none returns quietly without having read something."""

    _declaring = False  # inside a column list, where BYTES is a type
    _masked = ""  # the script as it may be shown

    def shown(self, token: Any, *, to: Any = None) -> str:
        """A token (and what follows, through `to`) as messages quote it: not what may be a secret."""
        self._masked = self._masked or masked(self.sql)
        place = slice(token.start, (to or token).end + 1)
        if self._masked[place] != self.sql[place]:
            return "…"
        text = str(self.sql[place] if to else token.text)
        return text if len(text) <= 40 else f"{text[:37]}…"

    def fail(
        self, message: str, token: Any = None, remedy: str = "", *, to: Any = None, unsupported: bool = False
    ) -> NoReturn:
        """Raise a Fault at `token` (through `to`), or behind the last one if the statement ended."""
        token = token or self._curr
        if token:
            raise Fault(message, token.start, (to or token).end + 1, remedy, unsupported=unsupported)
        end = self._tokens[-1].end + 1 if self._tokens else 0
        raise Fault(message, end, end + 1, remedy, unsupported=unsupported)

    def raise_error(self, message: str, token: Any = None) -> None:
        """sqlglot's own complaints, in our words."""
        if message.startswith("Expecting "):
            self.fail(f"expected '{message.removeprefix('Expecting ')}'{self._but_found()}", token)
        if "Required argument" in message:
            self.fail(f"something is missing here{self._but_found()}", token)
        if "Unexpected token" in message and self._curr:
            self.fail(f"unexpected '{self.shown(self._curr)}'", token)
        # Some of them print the token as Python would.
        reason = message.partition(" but got ")[0]
        self.fail(f"{reason[:1].lower()}{reason[1:]}{self._but_found()}", token)

    def keep_text(self, node: Any, start: Any) -> None:
        """Remember where the node stands, what the user wrote, and what Spark is to be given of it."""
        node.meta["written"] = self.sql
        node.meta["script"] = backticked(self.sql, self._tokens)
        node.meta["span"] = (start.start, self._prev.end + 1)

    def _but_found(self) -> str:
        return f", found '{self.shown(self._curr)}'" if self._curr else ", but the statement ends here"

    def word(self, *words: str) -> bool:
        """Read these keywords, in this order, if they come next."""
        for ahead, word in enumerate(words):
            at = self._index + ahead
            token = self._tokens[at] if at < self._tokens_size else None
            if token is None or not is_word(token) or token.text.upper() != word:
                return False
        self._advance(len(words))
        return True

    def expect_word(self, word: str, remedy: str = "") -> None:
        if not self.word(word):
            self.fail(f"expected {word}{self._but_found()}", remedy=remedy)

    def name(self, what: str) -> Any:
        """One unqualified name, bare or in quotes."""
        token = self._curr
        if not (is_word(token) or token.token_type == TokenType.IDENTIFIER):
            remedy = 'a name is a word, or anything in "double quotes" or `backticks`'
            self.fail(f"expected the name of {what}{self._but_found()}", remedy=remedy)
        if not token.text:
            self.fail(f"the name of {what} is empty")
        self._advance()
        if self._curr.token_type == TokenType.DOT:
            self.fail(f"the name of {what} has no qualifier", remedy="leave out what stands before the dot")
        return exp.Identifier(this=token.text, quoted=False).update_positions(token)

    def wrapped_list(self, item: Callable[[], Any]) -> list[Any]:
        """`(item, …)`; the opening parenthesis comes next."""
        opening = self._curr
        if not self._match(TokenType.L_PAREN):
            self.fail(f"expected '('{self._but_found()}")
        items: list[Any] = []
        while self._curr.token_type != TokenType.R_PAREN:
            items.append(item())
            if self._match(TokenType.COMMA):
                if self._curr.token_type == TokenType.R_PAREN:
                    self.fail("nothing follows this comma", self._prev, "remove the comma before ')'")
            elif not self._curr:
                self.fail("this '(' is never closed", opening, "add the missing ')'")
            elif self._curr.token_type != TokenType.R_PAREN:
                found = self.shown(self._curr)
                missing = ")" if is_word(self._curr) and found.upper() in _CLAUSES else ","
                remedy = f"is a '{missing}' missing before '{found}'?"
                self.fail(f"expected ',' or ')'{self._but_found()}", remedy=remedy)
        self._advance()
        return items

    def options(self) -> list[Any]:
        return self.wrapped_list(self._option)

    def _option(self) -> Any:
        start = self._curr
        quoted = start.token_type in _STRINGS or start.token_type == TokenType.IDENTIFIER
        key = self._quoted_key() if quoted else self._bare_key()
        shown = self.shown(start) if quoted else self.shown(start, to=self._prev)
        if not self._match(TokenType.EQ):
            if self._curr.token_type == TokenType.DASH:
                self.fail(
                    f"a bare key has no dash: '{shown}-…'", start, f"put the key in quotes: '{shown}-…' = …"
                )
            self.fail(
                f"expected '=' after option '{shown}'{self._but_found()}", remedy=f"write {shown} = 'value'"
            )
        value = self._value(shown)
        node = ast.OptionNode(this=key, value=value, quoted=quoted)
        node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def _quoted_key(self) -> str:
        key = str(self._curr.text)
        if not key.strip():
            self.fail("an option's key is empty")
        self._advance()
        return key

    def _bare_key(self) -> str:
        parts: list[str] = []
        while True:
            if not is_word(self._curr):
                remedy = "a key is a word, or anything in quotes: 'group.id' = 'g'"
                self.fail(f"expected the key of an option{self._but_found()}", remedy=remedy)
            parts.append(self._curr.text)
            self._advance()
            if not self._match(TokenType.DOT):
                return ".".join(parts)

    def text(self) -> str | None:
        """The text in quotes that comes next, if it does.

        Where no name can stand, a text may be in double quotes as well. There it never has escapes, so one that
        seems to have some is not read as something else than it was meant to be.
        """
        token = self._curr
        if is_double_quoted(token, self.sql):
            if "\\" in self.sql[token.start : token.end]:
                self.fail(
                    "a text with a backslash in it stands in single quotes", remedy="write '…' for \"…\""
                )
        elif token.token_type not in _STRINGS:
            return None
        self._advance()
        return str(token.text)

    def _value(self, key: str) -> str:
        start = self._curr
        text = self.text()
        if text is not None:
            return text
        sign = "-" if self._match(TokenType.DASH) else ""
        # A suffix (10s, 5L) makes three tokens of one place: not a number, but text without quotes.
        suffixed = self._next.token_type == TokenType.DCOLON
        if self._curr.token_type == TokenType.NUMBER and not suffixed:
            self._advance()
            return sign + str(self._prev.text)
        if not sign and start.token_type in (TokenType.TRUE, TokenType.FALSE):
            self._advance()
            return str(start.text.lower())
        if not start or start.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            self.fail(f"option '{key}' has no value{self._but_found()}", remedy=f"write {key} = 'value'")
        remedy = "a value is a 'string', a number, true or false: put text in quotes"
        return self.fail(f"the value of option '{key}' is not in quotes", start, remedy)

    def columns(self) -> list[Any]:
        self._declaring = True
        try:
            return self.wrapped_list(self._column)
        finally:
            self._declaring = False

    def _column(self) -> Any:
        start = self._curr
        if start.token_type == TokenType.PRIMARY_KEY or self._at_constraint():
            self.fail("a source has no primary key", start, _KEY_HINT, unsupported=True)
        if self.word("WATERMARK", "FOR"):
            column = self.name("the watermark's column")
            expression = None
            if self.word("AS"):
                first = self._curr
                self._declaring = False
                expression = self._parse_disjunction()
                self._declaring = True
                if expression is None:
                    self.fail(f"expected an expression after AS{self._but_found()}")
                expression.meta["span"] = (first.start, self._prev.end + 1)
            key = self.name("the key") if self.word("PER", "KEY") else None
            node = ast.WatermarkSpec(this=column, expression=expression, key=key)
        else:
            column = self.name("a column")
            self._refuse_computed(column.name)
            kind = self._column_type(column.name)
            nullable = not self.word("NOT", "NULL")
            if nullable:
                self.word("NULL")
            self._refuse_more(column.name)
            node = ast.ColumnSpec(this=column, kind=kind, nullable=nullable)
        node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def _at_constraint(self) -> bool:
        """`CONSTRAINT pk PRIMARY KEY (…)`; a column may be called constraint, too."""
        after = self._tokens[self._index + 2 : self._index + 3]
        return self._curr.text.upper() == "CONSTRAINT" and any(
            token.token_type in (TokenType.PRIMARY_KEY, TokenType.UNIQUE) for token in after
        )

    def _refuse_computed(self, column: str) -> None:
        if is_word(self._curr) and self._curr.text.upper() in ("AS", "GENERATED"):
            message = f"column '{column}' is computed, and a source has only what is in its records"
            self.fail(message, remedy=f"compute it in the view: SELECT … AS {column}", unsupported=True)

    def _refuse_more(self, column: str) -> None:
        """What follows a column's type elsewhere."""
        self._refuse_computed(column)
        start, word = self._curr, self._curr.text.upper() if is_word(self._curr) else ""
        if start.token_type == TokenType.PRIMARY_KEY or word in ("KEY", "UNIQUE"):
            self.fail(f"column '{column}': a source has no primary key", remedy=_KEY_HINT, unsupported=True)
        if word == "METADATA":
            self._advance()
            self.word("FROM")
            part = str(self._curr.text) if self._curr.token_type in _STRINGS else column
            remedy = metadata_remedy(column, part.lower())
            self.fail("METADATA is written with INCLUDE", start, remedy, unsupported=True)
        if word in ("COMMENT", "DEFAULT", "NOT"):
            self.fail(f"unexpected '{self.shown(start)}' in column '{column}'", remedy=_COLUMN_HINT)

    def _column_type(self, column: str) -> Any:
        start = self._curr
        # DOUBLE PRECISION is one token of two words.
        if not (is_word(start) or start.token_type in self.TYPE_TOKENS):
            self.fail(f"column '{column}' has no type{self._but_found()}", remedy=_COLUMN_HINT)
        kind = self._parse_types()
        kind.meta["span"] = (start.start, self._prev.end + 1)
        return kind

    def _at_bytes(self) -> bool:
        return is_word(self._curr) and self._curr.text.upper() == "BYTES"

    def _parse_types(self, *args: Any, **kwargs: Any) -> Any:
        # Within an expression, sqlglot only looks whether there is a type.
        if not self._declaring or kwargs.get("check_func"):
            return super()._parse_types(*args, **kwargs)
        start = self._curr
        if self._at_bytes():
            self._advance()
            found = exp.DataType(this=exp.DataType.Type.VARBINARY)
        else:
            found = super()._parse_types(*args, **kwargs)
        if not isinstance(found, exp.DataType):
            remedy = type_remedy(instead_of(start.text))
            self.fail(f"there is no type '{self.shown(start)}'", start, remedy, unsupported=True)
        found.meta["written"] = self.sql[start.start : self._prev.end + 1]
        return found

    def _parse_struct_types(self, type_required: bool = False) -> Any:
        # sqlglot takes the name of a field for a type if it can be one, and `bytes` is a fine name.
        if not self._declaring:
            return super()._parse_struct_types(type_required)
        field = self.name("a field")
        self._match(TokenType.COLON)
        if not (self._curr.token_type in self.TYPE_TOKENS or is_word(self._curr)):
            remedy = "a field is written: name: TYPE [NOT NULL]"
            self.fail(f"expected the type of field '{field.name}'{self._but_found()}", remedy=remedy)
        return self._parse_column_def(field)

    def format_clause(self) -> Any:
        """What follows FORMAT."""
        start = self._curr
        name = self.text()
        if name is None:
            if not is_word(start):
                remedy = "for example: FORMAT JSON"
                self.fail(f"expected the name of a format{self._but_found()}", remedy=remedy)
            self._advance()
            name = str(start.text)
            if self._curr.text.upper() == "ENCODE":
                remedy = format_remedy(name, str(self._next.text))
                self.fail(f"FORMAT {name.upper()} ENCODE is not supported", start, remedy, unsupported=True)
            while self._curr.token_type == TokenType.DASH and is_word(self._next):
                name += f"-{self._next.text}"
                self._advance(2)
        end = self._prev.end + 1
        options = self.options() if self._curr.token_type == TokenType.L_PAREN else []
        node = ast.FormatClause(this=name.lower().replace("_", "-"), options=options)
        node.meta["span"] = (start.start, end)
        return node

    def include_clause(self) -> list[Any]:
        """What follows INCLUDE: parts of the record, each with a name."""
        items: list[Any] = []
        while not items or self._match(TokenType.COMMA):
            start = self._curr
            what = next((word for word in INCLUDED if self.word(word)), None)
            if what is None:
                guess = did_you_mean(start.text, INCLUDED) if is_word(start) else None
                remedy = (
                    f"did you mean {guess}?" if guess else f"there is {', '.join(INCLUDED)}, each AS a name"
                )
                self.fail(f"a record has no such part{self._but_found()}", remedy=remedy)
            name = self.name("the column").name if self.word("AS") else f"_{what.lower()}"
            node = ast.Include(this=what.lower(), alias=name)
            node.meta["span"] = (start.start, self._prev.end + 1)
            items.append(node)
        return items

    def on_error_clause(self, start: Any) -> Any:
        """What follows ON ERROR, whose first token was `start`."""
        if not self._match(TokenType.EQ):
            self.fail(f"expected '=' after ON ERROR{self._but_found()}", remedy="write ON ERROR = 'skip'")
        token = self._curr
        strategy = self.text()
        if strategy is None:
            if not is_word(token):
                remedy = "one of 'skip', 'dead_letter', 'fail'"
                self.fail(f"expected an error strategy{self._but_found()}", remedy=remedy)
            self._advance()
            strategy = str(token.text)
        end = token.end + 1
        options = self.options() if self.word("WITH") else []
        node = ast.OnErrorClause(this=strategy.lower().replace("-", "_"), options=options)
        node.meta["span"] = (start.start, end)
        return node
