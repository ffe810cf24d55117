"""A query taken apart, clause by clause, with names resolved as Spark resolves them.

A clause, an expression or a name that is not known here raises NeedsSpark. So does what Spark would refuse: then its own
error is the one that the user sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from forebay.answers.question import AnswerColumn, AnswerGrouping, NeedsSpark, Question, SortKey, Total
from forebay.answers.spark_returns import is_scalar
from forebay.answers.totals import result_type
from forebay.column_types import BOOLEAN
from forebay.expression import Expression
from forebay.sql.expressions import is_escaped, obstacle, safe
from forebay.sql.source_columns import is_column

_CLAUSES = {
    "with_": "WITH", "joins": "JOIN", "laterals": "LATERAL", "windows": "WINDOW", "qualify": "QUALIFY", "hint": "a hint",
    "sort": "SORT BY", "cluster": "CLUSTER BY", "distribute": "DISTRIBUTE BY", "pivots": "PIVOT",
}  # fmt: skip
_MOST_ROWS = 2**31 - 1  # Spark counts them as INT
_KNOWN = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}
)
_FUNCTIONS: dict[type[Any], Any] = {
    exp.Count: "count", exp.Min: "min", exp.Max: "max", exp.Sum: "sum", exp.Avg: "avg",
}  # fmt: skip


def one_table(query: Any) -> str:
    """The name of the one table that the query reads, qualified as it is written."""
    if not isinstance(query, exp.Select):
        raise NeedsSpark(type(query).__name__.upper())
    for clause, found in query.args.items():
        if found and clause not in _KNOWN:
            raise NeedsSpark(_CLAUSES.get(clause, clause.strip("_").upper()))
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise NeedsSpark("a query that reads from no table" if table is None else "a subquery in FROM")
    if any(found for part, found in table.args.items() if part not in ("this", "db", "catalog", "alias")):
        raise NeedsSpark(_text(table))
    if table.args.get("alias") and table.args["alias"].args.get("columns"):
        raise NeedsSpark("new names for all columns of a table")
    return ".".join(part.name for part in table.parts)


def read(query: Any, schema: pa.Schema) -> Question:
    """What the query asks of a table of this schema. NeedsSpark if that is not for us to answer."""
    one_table(query)
    return _QuestionReading(query, schema).question()


class _QuestionReading:
    def __init__(self, query: Any, schema: pa.Schema) -> None:
        self._query = query
        self._fields = {field.name.lower(): field for field in schema}
        if len(self._fields) < len(schema):
            raise NeedsSpark("a table with columns whose names differ only in upper and lower case")
        self._star = tuple(schema)
        table = query.args["from_"].this
        self._own = {table.alias_or_name.lower(), ""}
        self._totals: dict[Total, None] = {}

    def question(self) -> Question:
        outputs = self._outputs()
        names = [output.field.name for output in outputs]
        if len(set(names)) < len(names):
            raise NeedsSpark("two columns of one name")
        keys = self._keys(outputs)
        distinct = self._distinct(outputs)
        # HAVING and ORDER BY may add totals, and HAVING alone makes one group of all rows.
        having = self._condition("having", lambda node: self._grouped(node, keys, outputs))
        grouped = bool(self._totals) or any(self._query.args.get(part) for part in ("group", "having"))
        order = tuple(self._sort_key(each, keys, outputs, distinct, grouped) for each in self._ordered())
        grouping = AnswerGrouping(keys, tuple(self._totals), having) if grouped or self._totals else None
        if grouping is not None:
            self._check_grouped(outputs, grouping, distinct)
        where = self._condition("where", self._column)
        return Question(
            self._needed(where, grouping, outputs, order),
            where, grouping, tuple(outputs), distinct, order,
            self._count("limit"), self._count("offset") or 0,
        )  # fmt: skip

    # -- names ---------------------------------------------------------------------------------------

    def _column(self, node: Any) -> tuple[str, pa.DataType] | None:
        """A column of the table."""
        field = self._fields.get(node.name.lower()) if is_column(node, self._own) else None
        return None if field is None else (field.name, field.type)

    def _total(self, node: Any) -> Total | None:
        function = _FUNCTIONS.get(type(node))
        if function is None or not self._is_written_as(node, function):
            return None
        argument = node.this
        if node.args.get("expressions") or isinstance(node.parent, exp.Filter | exp.Window | exp.WithinGroup):
            return None
        if function == "count" and (_is_star(argument) or argument == exp.Literal.number(1)):
            return Total("count", "")
        found = self._column(argument)
        if found is None:
            return None
        total = Total(function, found[0])
        result_type(total, found[1])  # NeedsSpark where the sum is not ours
        return total

    def _is_written_as(self, node: Any, function: str) -> bool:
        """Whether it goes by the name that Spark gives its column: `mean` is an avg, but under its own name."""
        start, end = node.meta.get("call", (0, 0))
        return str(self._query.meta["script"][start:end]).lower().replace(" ", "").startswith(f"{function}(")

    def _kind(self, total: Total) -> pa.DataType:
        return result_type(total, self._fields[total.column.lower()].type if total.column else None)

    def _grouped(
        self, node: Any, keys: Sequence[str], outputs: Sequence[AnswerColumn]
    ) -> tuple[str, pa.DataType] | None:
        """What a name or an aggregate in HAVING stands for."""
        total = self._total(node)
        if total is not None:
            self._totals[total] = None
            return total.name, self._kind(total)
        column = self._column(node)
        named = _by_name(node, outputs)
        if named is not None and (column is None or column[0] == named.column):
            return named.column, named.field.type
        # Where a name is an output's and another column's too, Spark knows which is meant.
        return column if named is None and column is not None and column[0] in keys else None

    # -- clauses -------------------------------------------------------------------------------------

    def _outputs(self) -> list[AnswerColumn]:
        found: list[AnswerColumn] = []
        for node in self._query.expressions:
            alias = node.alias if isinstance(node, exp.Alias) else ""
            inner = node.this if isinstance(node, exp.Alias) else node
            if _is_star(inner) and not alias:
                if isinstance(inner, exp.Column) and inner.table.lower() not in self._own:
                    self._leave(inner)
                found += [AnswerColumn(field.name, field) for field in self._star]
            elif (column := self._column(inner)) is not None:
                field = self._fields[column[0].lower()]
                found.append(AnswerColumn(field.name, field.with_name(alias or inner.name)))
            elif (total := self._total(inner)) is not None:
                self._totals[total] = None
                name = f"{total.function}({inner.this.name if total.column else '1'})"
                nullable = total.function != "count"
                found.append(AnswerColumn(total.name, pa.field(alias or name, self._kind(total), nullable)))
            else:
                self._leave(inner)
        return found

    def _keys(self, outputs: Sequence[AnswerColumn]) -> tuple[str, ...]:
        group = self._query.args.get("group")
        if group is None:
            return ()
        if any(found for part, found in group.args.items() if part != "expressions"):
            raise NeedsSpark("GROUP BY with anything but columns")
        keys: dict[str, None] = {}
        for node in group.expressions:
            found = self._column(node)
            if found is None:
                output = _by_place(node, outputs) or _by_name(node, outputs)
                if output is None or output.column not in self._names():
                    self._leave(node)
                found = output.column, output.field.type
            self._check_scalar(*found, "GROUP BY")
            keys[found[0]] = None
        return tuple(keys)

    def _distinct(self, outputs: Sequence[AnswerColumn]) -> bool:
        distinct = self._query.args.get("distinct")
        if distinct is None:
            return False
        if distinct.args.get("on"):
            raise NeedsSpark("DISTINCT ON")
        for output in outputs:
            self._check_scalar(output.column, output.field.type, "DISTINCT")
        return True

    def _ordered(self) -> list[Any]:
        order = self._query.args.get("order")
        found = [] if order is None else list(order.expressions)
        if order is not None and any(each for part, each in order.args.items() if part != "expressions"):
            self._leave(order)
        for node in found:
            if any(each for part, each in node.args.items() if part not in ("this", "desc", "nulls_first")):
                self._leave(node)
        return found

    def _sort_key(
        self,
        ordered: Any,
        keys: Sequence[str],
        outputs: Sequence[AnswerColumn],
        distinct: bool,
        grouped: bool,
    ) -> SortKey:
        """By place, by the name of an output, or else by what the outputs are made of."""
        node = ordered.this
        output = _by_place(node, outputs) or _by_name(node, outputs)
        if output is not None:
            column, kind = output.column, output.field.type
        else:
            found = self._grouped(node, keys, outputs) if grouped else self._column(node)
            if found is None or distinct:
                self._leave(node)
            column, kind = found
        self._check_scalar(column, kind, "ORDER BY")
        return SortKey(column, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))

    def _condition(self, clause: str, named: Any) -> Expression | None:
        asked = self._query.args.get(clause)
        if asked is None:
            return None

        def column(node: Any) -> Expression | None:
            known = named(node)
            return None if known is None else Expression.column(*known)

        found = safe(asked.this, column)
        if found is None or found.type != BOOLEAN:
            refused = obstacle(asked.this, column)
            if any(text.is_string and is_escaped(text) for text in refused.find_all(exp.Literal)):
                raise NeedsSpark("a backslash in a text")
            raise NeedsSpark(f"{clause.upper()} {_text(refused)}")
        return found

    def _count(self, clause: str) -> int | None:
        found = self._query.args.get(clause)
        if found is None:
            return None
        number = found.expression
        if any(each for part, each in found.args.items() if part != "expression") or not _is_number(number):
            raise NeedsSpark(f"{clause.upper()} with anything but a number")
        if int(number.name) > _MOST_ROWS:
            self._leave(found)
        return int(number.name)

    # -- checks --------------------------------------------------------------------------------------

    def _check_grouped(
        self, outputs: Sequence[AnswerColumn], grouping: AnswerGrouping, distinct: bool
    ) -> None:
        known = {*grouping.keys, *(total.name for total in grouping.totals)}
        for output in outputs:
            if output.column not in known:
                raise NeedsSpark(f"{output.field.name}, which is in no group and no aggregate")
        if distinct:
            raise NeedsSpark("DISTINCT of groups")

    def _check_scalar(self, column: str, kind: pa.DataType, clause: str) -> None:
        if not is_scalar(kind):
            raise NeedsSpark(f"{clause} {column}, which has parts")

    def _names(self) -> set[str]:
        return {field.name for field in self._star}

    def _needed(
        self,
        where: Expression | None,
        grouping: AnswerGrouping | None,
        outputs: Sequence[AnswerColumn],
        order: Sequence[SortKey],
    ) -> tuple[str, ...]:
        needed = {*(where.columns() if where else ()), *(key.column for key in order)}
        needed |= {output.column for output in outputs}
        if grouping is not None:
            needed |= {*grouping.keys, *(total.column for total in grouping.totals)}
        found = [field.name for field in self._star if field.name in needed]
        # To count rows one column has to be read.
        return tuple(found or [min(self._star, key=lambda field: types.is_nested(field.type)).name])

    def _leave(self, node: Any) -> NoReturn:
        raise NeedsSpark(_text(node))


def _by_name(node: Any, outputs: Sequence[AnswerColumn]) -> AnswerColumn | None:
    if not is_column(node, {""}):
        return None
    named = [output for output in outputs if output.field.name.lower() == node.name.lower()]
    if len(named) > 1:
        raise NeedsSpark(f"{node.name}, which two columns are named")
    return named[0] if named else None


def _by_place(node: Any, outputs: Sequence[AnswerColumn]) -> AnswerColumn | None:
    place = int(node.name) if _is_number(node) else 0
    return outputs[place - 1] if 0 < place <= len(outputs) else None


def _is_star(node: Any) -> bool:
    star = node.this if isinstance(node, exp.Column) else node
    return isinstance(star, exp.Star) and not any(star.args.values())


def _is_number(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and str(node.name).isdecimal()


def _text(node: Any) -> str:
    """A part of the query for EXPLAIN, as near to what the user wrote as sqlglot has it."""
    try:
        return str(node.sql(dialect="forebay", comments=False))
    except ValueError:  # a node of our own has no text that sqlglot knows
        return f"a {type(node).__name__}"
