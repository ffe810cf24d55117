"""`FROM TUMBLE(TABLE t, DESCRIPTOR(ts), size)`: windows as tables, as Flink and RisingWave write them.

A table of windows is its table with the columns `window_start` and `window_end`. A SELECT that groups by them is read
as one that groups by the window itself, `FROM t GROUP BY TUMBLE(ts, size)`: only that tells Spark when a window closes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from forebay.sql.ast import EventWindow, WindowTable
from forebay.sql.clauses import is_word
from forebay.sql.letter_clauses import LetterParser
from forebay.sql.positions import span

_FUNCTIONS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_SIZES = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "SESSION": ("GAP",)}
_USAGE = {
    "TUMBLE": "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE): table, time, size",
    "HOP": "FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE): table, time, slide, size",
    "SESSION": "FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE): table, time, gap",
}
# Flink has three columns, RisingWave the first two.
BOUNDS = {"window_start": "{}.start", "window_end": "{}.end"}
FLINK_BOUNDS = BOUNDS | {"window_time": "({}.end - INTERVAL '0.001' SECOND)"}


class WindowTableParser(LetterParser):
    """Reads tables of windows, and what a query groups by that has one."""

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        wrapped = self._text_ahead(0) == "TABLE" and self._text_ahead(1) == "("
        at = 2 if wrapped else 0
        if self._text_ahead(at) not in _FUNCTIONS or self._text_ahead(at + 1) != "(":
            return super()._parse_table(*args, **kwargs)
        start = self._curr
        self._advance(at)
        table = self._window_table(start)
        if wrapped:
            self._closing()
        table.meta["table_span"] = (start.start, self._prev.end + 1)
        alias = self._parse_table_alias(alias_tokens=kwargs.get("alias_tokens") or self.TABLE_ALIAS_TOKENS)
        if alias is not None:
            if alias.args.get("columns"):
                self.fail("a table of windows has its own columns", start, "write AS name, without a list")
            table.set("alias", alias)
        if kwargs.get("joins"):
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _text_ahead(self, by: int) -> str:
        at = self._index + by
        token = self._tokens[at] if at < self._tokens_size else None
        return str(token.text).upper() if token and (is_word(token) or token.text == "(") else ""

    def _window_table(self, start: Any) -> Any:
        """`TUMBLE(…)`, whose name comes next."""
        function = str(self._curr.text).upper()
        name = self._curr
        if function == "CUMULATE":
            remedy = (
                "write TUMBLE with the whole size and EMIT CHANGES: its row grows with each record until the window "
                "is over; or HOP with the step as its slide"
            )
            self.fail("CUMULATE is not supported", name, remedy, unsupported=True)
        self._advance(2)
        usage = f"write {_USAGE[function]}"
        self._named("DATA", usage)
        flink = self.word("TABLE")
        table = self._parse_table_parts()
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            self.fail(f"the first argument of {function} is the name of a source", start, usage)
        keys = self._partition_keys(function, usage)
        self._comma(function, usage)
        self._named("TIMECOL", usage)
        flink, time = self._time(function, usage, flink)
        sizes: list[Any] = []
        for size in _SIZES[function]:
            self._comma(function, usage)
            self._named(size, usage)
            sizes.append(self._parse_disjunction())
            if sizes[-1] is None:
                self.fail(f"expected the {size.lower()} of {function}{self._but_found()}", remedy=usage)
        if self._curr.token_type == TokenType.COMMA:
            self.fail(
                f"{function} takes no more arguments: an offset is not supported",
                remedy=usage,
                unsupported=True,
            )
        self._closing()
        call = EventWindow(name=function, expressions=[time, *sizes], flink=flink)
        call.meta["span"] = (name.start, self._prev.end + 1)
        parts = {part: table.args.get(part) for part in ("this", "db", "catalog")}
        return WindowTable(**parts, window=call, partition_keys=keys)

    def _time(self, function: str, usage: str, flink: bool) -> tuple[bool, Any]:
        described = self.word("DESCRIPTOR")
        if described and not self._match(TokenType.L_PAREN):
            self.fail(f"expected '('{self._but_found()}", remedy=usage)
        time = self._parse_column()
        if not isinstance(time, exp.Column) or not isinstance(time.this, exp.Identifier):
            self.fail(
                f"the second argument of {function} is the column with the time{self._but_found()}",
                remedy=usage,
            )
        if described:
            self._closing()
        return flink or described, time

    def _partition_keys(self, function: str, usage: str) -> list[Any]:
        start = self._curr
        if not self._match(TokenType.PARTITION_BY):
            return []
        if function != "SESSION":
            self.fail(f"{function} has no PARTITION BY", start, usage)
        if self._curr.token_type == TokenType.L_PAREN:
            keys = self._parse_wrapped_csv(self._parse_column)
        else:
            keys = [self._parse_column()]
        if not all(isinstance(key, exp.Column) for key in keys):
            self.fail("PARTITION BY names columns", start, usage)
        return list(keys)

    def _named(self, name: str, usage: str) -> None:
        """An argument may have its name before it; the order stays."""
        if self._next.token_type != TokenType.FARROW:
            return
        if not self.word(name):
            self.fail(f"expected {name}{self._but_found()}", remedy=usage)
        self._advance()

    def _comma(self, function: str, usage: str) -> None:
        if not self._match(TokenType.COMMA):
            self.fail(f"{function} has too few arguments{self._but_found()}", remedy=usage)

    def _closing(self) -> None:
        if not self._match(TokenType.R_PAREN):
            self.fail(f"expected ')'{self._but_found()}")

    def group_by_windows(self, query: Any) -> None:
        """Let SELECTs that group by the bounds of a table of windows group by the window itself."""
        for select in query.find_all(exp.Select):
            table = window_table(select)
            if table is None:
                continue
            bounds = FLINK_BOUNDS if table.args["window"].args.get("flink") else BOUNDS
            for column in _columns(select):
                if column.name.lower() in bounds and column.table.lower() == table.alias_or_name.lower():
                    column.meta["bound"] = span(column)
                    column.set("table", None)
            self._group_by_window(select, table, bounds)

    def _group_by_window(self, select: Any, table: Any, bounds: dict[str, str]) -> None:
        group = select.args.get("group")
        if group is None:
            return
        found = [key for key in group.expressions if _is_bound(key, select, bounds)]
        if not found:
            return
        first, *others = found
        window = table.args["window"].copy()
        window.meta["span"] = _place(first)
        # The others go, with the comma before them.
        window.meta["dropped"] = [(self._comma_before(_place(key)[0]), _place(key)[1]) for key in others]
        if select.args.get("joins"):
            window.meta["qualifier"] = table.alias_or_name
        kept = [key for key in group.expressions if not any(key is other for other in others)]
        group.set("expressions", [window if key is first else key for key in kept])
        table.set("grouped", True)

    def _comma_before(self, at: int) -> int:
        commas = [
            token.start for token in self._tokens if token.token_type == TokenType.COMMA and token.start < at
        ]
        return int(max(commas))


def window_table(select: Any) -> Any:
    """The one table of windows that a SELECT reads, or None."""
    source = select.args["from_"].this if select.args.get("from_") else None
    joined = [join.this for join in select.args.get("joins") or ()]
    if not isinstance(source, WindowTable) or any(isinstance(each, WindowTable) for each in joined):
        return None
    return source


def _columns(select: Any) -> Iterator[Any]:
    for column in select.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is select and not column.find_ancestor(WindowTable):
            yield column


def grouped_by(select: Any, key: Any) -> Any:
    """What a key of GROUP BY stands for: it may be the alias or the place of what is selected."""
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit():
        at = int(key.name) - 1
        return select.expressions[at].unalias() if 0 <= at < len(select.expressions) else key
    if isinstance(key, exp.Column) and not key.table:
        aliased = [each for each in select.expressions if each.alias.lower() == key.name.lower()]
        return aliased[0].unalias() if len(aliased) == 1 else key
    return key


def _is_bound(key: Any, select: Any, bounds: dict[str, str]) -> bool:
    found = key if _is_named(key, bounds) else grouped_by(select, key)
    return _is_named(found, bounds)


def _is_named(node: Any, bounds: dict[str, str]) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in bounds


def _place(node: Any) -> tuple[int, int]:
    found = node.meta.get("bound") or span(node)
    assert found is not None
    return int(found[0]), int(found[1])
