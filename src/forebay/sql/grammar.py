"""The statements of Forebay's SQL, word by word, and the queries inside them."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from forebay.sql import ast
from forebay.sql.clauses import is_word
from forebay.sql.faults import did_you_mean
from forebay.sql.letter_clauses import LETTER_VERBS
from forebay.sql.other_dialects import create_remedy, foreign_words, format_remedy
from forebay.sql.quotes import refuse_prefixed
from forebay.sql.view_clauses import EMIT_HINT, LATE_HINT, ViewClauseParser

STATEMENTS = (
    "CREATE SOURCE",
    "CREATE MATERIALIZED VIEW",
    "ALTER SOURCE … ON ERROR | SET",
    "ALTER VIEW … DETACH",
    "DROP SOURCE | MATERIALIZED VIEW | SINK",
    "SHOW SOURCES | VIEWS | SINKS | QUERIES | LAG",
    "SHOW CREATE SOURCE | VIEW",
    "DESCRIBE SOURCE | VIEW",
    "EXPLAIN",
    "SELECT",
    "SUBSCRIBE",
    "START VIEW | STOP VIEW",
    "PAUSE SOURCE | RESUME SOURCE",
    "REPLAY | DISCARD | REOPEN | RECOVER DEAD LETTERS",
)
THERE_IS = f"there is: {', '.join(STATEMENTS)}"
_LEADING = (
    "CREATE",
    "ALTER",
    "DROP",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "EXPLAIN",
    "SELECT",
    "WITH",
    "SUBSCRIBE",
    "START",
    "STOP",
    "PAUSE",
    "RESUME",
    *LETTER_VERBS,
)
# Verbs of SQL we know of and do not have: the answer is "no", not "what?".
_FOREIGN = frozenset(
    {"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "ALTER", "USE", "SET", "RESET", "GRANT", "REVOKE"}
    | {
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "CACHE",
        "UNCACHE",
        "REFRESH",
        "ANALYZE",
        "CALL",
        "COPY",
        "LOAD",
        "MSCK",
    }
    | {"OPTIMIZE", "VACUUM", "PRAGMA", "ATTACH", "DETACH", "KILL", "DECLARE", "EXECUTE", "PREPARE", "COMMENT"}
    | {"FROM", "TABLE", "REPLACE", "UPSERT", "RENAME", "UNLOAD", "EXPORT"}
)
_CREATABLE = frozenset(
    {"TABLE", "VIEW", "DATABASE", "SCHEMA", "FUNCTION", "INDEX", "TEMPORARY", "TEMP", "SINK", "STREAM"}
    | {"CONNECTION", "EXTERNAL", "SECRET"}
)
EVENT_WINDOWS = frozenset(
    f"{kind}{part}" for kind in ("TUMBLE", "HOP", "SESSION") for part in ("", "_START", "_END")
) | {"WINDOW", "SESSION_WINDOW"}


class ForebayParser(ViewClauseParser):
    """sqlglot's Spark parser, with our statements in front of it."""

    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **ViewClauseParser.FUNCTION_PARSERS,
        **dict.fromkeys(EVENT_WINDOWS, lambda self: self._parse_event_window()),
    }

    def _parse(self, parse_method: Any, raw_tokens: list[Any], sql: str | None = None) -> Any:
        # `WINDOW (` and `SESSION (` are calls, but these two words are keywords to sqlglot, which
        # looks for the clause of that name instead.
        tokens = list(raw_tokens)
        for at, (token, following) in enumerate(itertools.pairwise(tokens)):
            callable_word = token.token_type in (TokenType.WINDOW, TokenType.SESSION)
            if token.text.upper() in ("R", "X") and token.end + 1 == following.start:
                refuse_prefixed(token, following, sql or "")
            if callable_word and following.token_type == TokenType.L_PAREN:
                tokens[at] = Token(
                    TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments
                )
        return super()._parse(parse_method, tokens, sql)

    def _parse_statement(self) -> Any:
        # sqlglot comes here for the body of a CTE too, but never at the first token.
        if self._index > 0:
            return super()._parse_statement()
        node = self._forebay_statement()
        if self._curr:
            self.fail(
                f"unexpected '{self.shown(self._curr)}' after the end of the statement",
                remedy=self._leftover_hint(node),
            )
        return node

    def _parse_as_command(self, start: Any) -> Any:
        # sqlglot would warn and pass the text on unparsed.
        self.fail(f"'{self.shown(start)}' is not supported here", start, THERE_IS, unsupported=True)

    def _parse_command(self) -> Any:
        self._parse_as_command(self._prev)

    def _forebay_statement(self) -> Any:
        start = self._curr
        if self.word("CREATE"):
            return self._create(start)
        if self.word("ALTER", "SOURCE"):
            return self._alter_source()
        if self.word("ALTER", "MATERIALIZED", "VIEW") or self.word("ALTER", "VIEW"):
            return self._alter_view()
        if self.word("DROP"):
            return self._drop()
        if self.word("SHOW"):
            return self._show()
        if self.word("DESCRIBE") or self.word("DESC"):
            return self._describe()
        if self.word("EXPLAIN"):
            return self._explain()
        if self.word("SUBSCRIBE"):
            self.word("TO")
            return ast.SubscribeNode(this=self.name("the view"))
        for verb in ("START", "STOP"):
            if self.word(verb):
                if not (self.word("MATERIALIZED", "VIEW") or self.word("VIEW")):
                    self._wrong_kind(verb, ("VIEW", "MATERIALIZED"))
                return ast.RunView(this=self.name("the view"), verb=verb.lower())
        for verb in ("PAUSE", "RESUME"):
            if self.word(verb):
                if not self.word("SOURCE"):
                    self._wrong_kind(verb, ("SOURCE",))
                self.word("TABLE")
                return ast.FlowNode(this=self.name("the source"), verb=verb.lower())
        for verb in LETTER_VERBS:
            if self.word(verb):
                return self.dead_letters(verb)
        if start.token_type == TokenType.L_PAREN or start.text.upper() in ("SELECT", "WITH", "VALUES"):
            return ast.SelectStatement(query=self._query())
        return self._unknown(start)

    def _unknown(self, start: Any) -> NoReturn:
        word = start.text.upper()
        guess = did_you_mean(word, _LEADING) if is_word(start) and word not in _FOREIGN else None
        if guess:
            self.fail(f"no statement begins with '{self.shown(start)}'", start, f"did you mean {guess}?")
        if is_word(start) and word in _FOREIGN:
            self.fail(f"{word} is not supported", start, THERE_IS, unsupported=True)
        self.fail(
            f"no statement begins with '{self.shown(start)}'", start, THERE_IS, unsupported=is_word(start)
        )

    def _create(self, start: Any) -> Any:
        replace = self.word("OR", "REPLACE")
        kind = self._curr
        if self.word("SOURCE"):
            self.word("TABLE")
            return self._create_source(replace)
        if self.word("MATERIALIZED"):
            self.expect_word("VIEW", "write CREATE MATERIALIZED VIEW name AS SELECT …")
            return self._create_view(replace)
        if not kind:
            self.fail("CREATE what?", start, "write CREATE SOURCE or CREATE MATERIALIZED VIEW")
        word = kind.text.upper()
        if is_word(kind) and word in _CREATABLE:
            remedy = create_remedy(word, self._tokens) or THERE_IS
            self.fail(f"CREATE {word} is not supported", start, remedy, to=kind, unsupported=True)
        guess = did_you_mean(word, ("SOURCE", "MATERIALIZED"))
        remedy = f"did you mean {guess}?" if guess else THERE_IS
        return self.fail(f"cannot create '{self.shown(kind)}'", kind, remedy, unsupported=not guess)

    def _if_not_exists(self, replace: bool) -> bool:
        start = self._curr
        if not self.word("IF", "NOT", "EXISTS"):
            return False
        if replace:
            remedy = "choose one of the two"
            self.fail("OR REPLACE and IF NOT EXISTS exclude each other", start, remedy, to=self._prev)
        return True

    def _create_source(self, replace: bool) -> Any:
        exists = self._if_not_exists(replace)
        name = self.name("the source")
        opening = self._curr
        columns = None
        if opening.token_type == TokenType.L_PAREN:
            columns = self.columns()
            if not columns:
                remedy = "list the columns, or leave the parentheses out and let the schema registry tell"
                self.fail("the list of columns is empty", opening, remedy, to=self._prev)
        args: dict[str, Any] = {"this": name, "columns": columns, "exists": exists, "replace": replace}
        if self.word("WITH"):
            args["options"] = self.options()
        elif self.word("FROM"):
            connector = self._curr
            if not is_word(connector):
                self.fail(f"expected a connector{self._but_found()}", remedy="for example: FROM KAFKA (…)")
            self._advance()
            if is_word(self._curr) and self._curr.text.upper() == "CONNECTION":
                remedy = f"write FROM {connector.text.upper()} (brokers = '…', topic = '…')"
                self.fail("there are no connections", remedy=remedy, unsupported=True)
            args["connector"] = str(connector.text).lower()
            args["options"] = self.options()
            if self.word("FORMAT"):
                args["format"] = self.format_clause()
            if self.word("USING"):
                self.expect_word("SCHEMA", "write USING SCHEMA REGISTRY (url = '…')")
                self.expect_word("REGISTRY", "write USING SCHEMA REGISTRY (url = '…')")
                args["registry"] = self.options()
        else:
            remedy = "a source ends in WITH ('connector' = 'kafka', …) or FROM KAFKA (…)"
            self.fail(f"expected WITH or FROM{self._but_found()}", remedy=remedy)
        if self.word("INCLUDE"):
            args["include"] = self.include_clause()
        on = self._curr
        if self.word("ON", "ERROR"):
            args["on_error"] = self.on_error_clause(on)
        return ast.CreateSourceNode(**args)

    def _alter_source(self) -> Any:
        self.word("TABLE")
        name = self.name("the source")
        on = self._curr
        if self.word("SET"):
            return ast.SetSourceNode(this=name, options=self.options())
        if not self.word("ON", "ERROR"):
            remedy = "what can be altered is the error policy, and options by SET (…); else: DROP SOURCE, CREATE SOURCE"
            self.fail(f"expected ON ERROR or SET{self._but_found()}", remedy=remedy)
        return ast.AlterSourceNode(this=name, on_error=self.on_error_clause(on))

    def _alter_view(self) -> Any:
        name = self.name("the view")
        if not self.word("DETACH"):
            remedy = "all that can be altered is that it is detached: ALTER VIEW … DETACH; else: CREATE OR REPLACE MATERIALIZED VIEW"
            self.fail(f"expected DETACH{self._but_found()}", remedy=remedy)
        return ast.RunView(this=name, verb="detach")

    def _create_view(self, replace: bool) -> Any:
        exists = self._if_not_exists(replace)
        name = self.name("the view")
        if self._curr.token_type == TokenType.L_PAREN:
            self.fail(
                "a view's columns are named in its SELECT",
                remedy="remove the list and write SELECT … AS name",
            )
        options = self.options() if self.word("WITH") else []
        self.expect_word("AS", "write CREATE MATERIALIZED VIEW name [WITH (start = 'now')] AS SELECT …")
        emit, late = self.cut_clauses()
        return ast.CreateViewNode(
            this=name,
            options=options,
            query=self._query(),
            emit=emit,
            late=late,
            exists=exists,
            replace=replace,
        )

    def _query(self) -> Any:
        start = self._curr
        if not start:
            self.fail("the query is missing", remedy="write SELECT … FROM …")
        foreign = foreign_words(self._tokens)
        if foreign:
            self.fail(foreign.message, foreign.first, foreign.remedy, to=foreign.last, unsupported=True)
        query = self._parse_ddl_select()
        if not isinstance(query, exp.Query | exp.Values):
            self.fail(f"expected a query, found '{self.shown(start)}'", start, "write SELECT … FROM …")
        for refused, what in ((exp.Into, "SELECT INTO"), (exp.DML, "a statement that writes")):
            if query.find(refused):
                self.fail(f"{what} is not supported", start, THERE_IS, unsupported=True)
        for select in query.find_all(exp.Select):
            if not select.expressions and not select.args.get("kind"):
                self.fail("SELECT without a list of columns", start, "name the columns, or write SELECT *")
        for cte in query.find_all(exp.CTE):
            if not isinstance(cte.this, exp.Query | exp.Values):
                self.fail(f"'{cte.alias}' in WITH is not a query", start, "write WITH name AS (SELECT …)")
        self.group_by_windows(query)
        self.keep_text(query, start)
        return query

    def _parse_expression(self) -> Any:
        start = self._curr
        node = super()._parse_expression()
        if node is not None and start:
            node.meta["span"] = (start.start, self._prev.end + 1)
        return node

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
        start = self._curr
        node = super()._parse_function_call(*args, **kwargs)
        if node is not None and start:
            node.meta["call"] = (start.start, self._prev.end + 1)
        return node

    def _parse_csv(self, parse_method: Any, sep: Any = TokenType.COMMA) -> list[Any]:
        # sqlglot forgives a comma with nothing behind it; Spark does not, and neither do we.
        def item() -> Any:
            after = self._prev
            node = parse_method()
            if node is None and after and after.token_type == sep and self._prev is after:
                self.fail("nothing follows this comma", after, "remove the comma, or add what is missing")
            return node

        return list(super()._parse_csv(item, sep))

    def _parse_event_window(self) -> Any:
        name = self._tokens[self._index - 2]
        arguments: list[Any] = []
        first_end = name.end + 1
        while self._curr and self._curr.token_type != TokenType.R_PAREN:
            argument = self._parse_disjunction()
            if argument is None:
                self.fail(f"expected an argument of {name.text.upper()}{self._but_found()}")
            arguments.append(argument)
            if len(arguments) == 1:
                first_end = self._prev.end + 1
            if not self._match(TokenType.COMMA):
                break
        closing = self._curr
        if closing.token_type != TokenType.R_PAREN:
            self.fail(f"expected ',' or ')'{self._but_found()}")
        node = ast.EventWindow(name=name.text.upper(), expressions=arguments)
        node.meta["name"] = (name.start, name.end + 1)
        node.meta["first_end"] = first_end
        node.meta["close"] = closing.start
        node.meta["span"] = (name.start, closing.end + 1)
        return node

    def _drop(self) -> Any:
        kind = self._object_kind("DROP", ("SOURCE", "MATERIALIZED", "VIEW", "SINK"))
        exists = self.word("IF", "EXISTS")
        name = self.name(f"the {kind}")
        cascade = self.word("CASCADE")
        if not cascade:
            self.word("RESTRICT")
        return ast.DropNode(this=name, kind=kind, exists=exists, cascade=cascade)

    def _object_kind(self, verb: str, known: tuple[str, ...]) -> str:
        if self.word("SOURCE"):
            self.word("TABLE")
            return "source"
        if self.word("MATERIALIZED", "VIEW") or self.word("VIEW"):
            return "view"
        if "SINK" in known and self.word("SINK"):
            return "sink"
        return self._wrong_kind(verb, known)

    def _wrong_kind(self, verb: str, known: tuple[str, ...]) -> NoReturn:
        listed = " | ".join(word for word in known if word != "MATERIALIZED")
        if not self._curr:
            self.fail(f"{verb} what?", self._prev, f"there is {verb} {listed}")
        guess = did_you_mean(self._curr.text, known)
        remedy = f"did you mean {verb} {guess}?" if guess else f"there is {verb} {listed}"
        self.fail(f"unexpected '{self.shown(self._curr)}' after {verb}", remedy=remedy)

    def _show(self) -> Any:
        if self.word("CREATE"):
            kind = self._object_kind("SHOW CREATE", ("SOURCE", "MATERIALIZED", "VIEW"))
            return ast.ShowCreateNode(this=self.name(f"the {kind}"), kind=kind)
        if self.word("MATERIALIZED"):
            self.expect_word("VIEWS", "write SHOW VIEWS or SHOW MATERIALIZED VIEWS")
            return ast.ShowNode(kind="views")
        for kind in ("SOURCES", "VIEWS", "SINKS", "QUERIES", "LAG"):
            if self.word(kind):
                return ast.ShowNode(kind=kind.lower())
        known = ("SOURCES", "VIEWS", "MATERIALIZED", "SINKS", "QUERIES", "LAG", "CREATE")
        return self._wrong_kind("SHOW", known)

    def _describe(self) -> Any:
        extended = self.word("EXTENDED")
        if self._curr and not self._next:
            return ast.DescribeNode(this=self.name("the source or view"), kind=None, extended=extended)
        kind = self._object_kind("DESCRIBE", ("SOURCE", "MATERIALIZED", "VIEW", "EXTENDED"))
        return ast.DescribeNode(this=self.name(f"the {kind}"), kind=kind, extended=extended)

    def _explain(self) -> Any:
        start = self._curr
        if not start:
            self.fail("EXPLAIN what?", self._prev, "write EXPLAIN SELECT … or EXPLAIN CREATE …")
        end = self._tokens[-1].end + 1
        node = self._forebay_statement()
        if not isinstance(node, ast.SelectStatement | ast.CreateViewNode | ast.CreateSourceNode):
            remedy = "there is EXPLAIN SELECT, EXPLAIN CREATE MATERIALIZED VIEW, EXPLAIN CREATE SOURCE"
            self.fail(f"EXPLAIN {start.text.upper()} is not supported", start, remedy, unsupported=True)
        node.meta["span"] = (start.start, end)
        return ast.ExplainNode(this=node)

    def _leftover_hint(self, node: Any) -> str:
        if any(token.text.upper() == "EMIT" for token in self._tokens[-5:]):
            if isinstance(node, ast.SelectStatement):
                return "EMIT belongs to CREATE MATERIALIZED VIEW; to follow a view, write SUBSCRIBE v"
            return EMIT_HINT
        if isinstance(node, ast.CreateViewNode) and {"LATE", "LATENESS"} & {
            token.text.upper() for token in self._tokens[self._index :]
        }:
            return f"the clauses are ALLOW LATENESS INTERVAL '1' MINUTE and LATE DATA TO: {LATE_HINT}"
        if isinstance(node, ast.CreateSourceNode):
            ahead = [str(token.text) for token in self._tokens[self._index :]]
            if len(ahead) > 3 and (ahead[0].upper(), ahead[2].upper()) == ("FORMAT", "ENCODE"):
                return format_remedy(ahead[1], ahead[3])
            if ahead[0].upper() == "ENVELOPE":
                return "leave it out; a table's changes from Debezium: FORMAT DEBEZIUM_JSON"
            if self._curr.text.upper() in ("FORMAT", "USING") and not node.args.get("connector"):
                return "after WITH (…), say it as an option: 'format' = 'json', 'schema.registry.url' = '…'"
            if self._curr.text.upper() in ("FORMAT", "USING", "INCLUDE", "ON", "WITH"):
                return (
                    "the order is FROM KAFKA (…) FORMAT … USING SCHEMA REGISTRY (…) INCLUDE … AS … "
                    "ON ERROR = … WITH (…)"
                )
        if is_word(self._curr) and did_you_mean(self._curr.text, _LEADING):
            return "statements are separated by ';'"
        return "is a ';' or a comma missing before it?"
