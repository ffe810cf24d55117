"""Expressions of SQL that can be worked out without Spark, with every type settled as Spark settles it.

What is not certain to have Spark's answer is None here: the query is then Spark's. Spark's optimizer drops or reorders
parts that it finds needless, and with them the errors that they would raise; such expressions are None, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from sqlglot import exp

from forebay import column_types as types
from forebay.expression import Expression
from forebay.sql.calls import call, element, extreme, moved, of_one_type, rounded, size
from forebay.sql.coercion import cast, common_type, is_decimal, widened
from forebay.sql.decimals import arithmetic_type, as_decimal
from forebay.sql.literals import literal, time_of
from forebay.sql.source_columns import Named

_COMPARED = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_LOOSE = (*_COMPARED, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like)
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_TEXT_TESTS = {exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains"}
_DATE_PARTS = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek", exp.DayOfYear: "dayofyear", exp.WeekOfYear: "week",
}  # fmt: skip
_CLOCK_PARTS = {exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second"}
_TRUNCATED_TO = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip
_DATE_TRUNC = re.compile(r"date_trunc\s*\(\s*'(\w+)'\s*,", re.IGNORECASE)
_Type = exp.DataType.Type
_CAST_TO = {
    _Type.TINYINT: types.TINYINT, _Type.SMALLINT: types.SMALLINT, _Type.INT: types.INT, _Type.BIGINT: types.BIGINT,
    _Type.FLOAT: types.FLOAT, _Type.DOUBLE: types.DOUBLE, _Type.TEXT: types.STRING, _Type.BOOLEAN: types.BOOLEAN,
    _Type.DATE: types.DATE, _Type.TIMESTAMPTZ: types.TIMESTAMP,
}  # fmt: skip
_FLOATING = (types.FLOAT, types.DOUBLE)
_STAMPS = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_LONGEST = 2**31 - 1


def compiled(node: Any, named: Named) -> Expression | None:
    """The expression that a node of a query is, or None."""
    found = _made(node, named)
    # What is compared with itself is known to Spark, which then does not look at what depends on it either.
    return None if found is not None and found.may_fail and _is_known(found) else found


def _made(node: Any, named: Named) -> Expression | None:
    node = node.unnest()
    found = named(node)
    if found is not None:
        return found
    made = literal(node)
    if made is not None:
        return None if made.type == types.STRING and is_escaped(node) else made
    maker = _MAKERS.get(type(node))
    if maker is None or _binds_otherwise(node):
        return None
    make, known = maker
    if any(given for name, given in node.args.items() if name not in known):
        return None
    return make(node, named)


def _is_known(found: Expression) -> bool:
    if found.operator in _COMPARED.values() and found.arguments[0] == found.arguments[1]:
        return True
    return any(map(_is_known, found.arguments))


def _binds_otherwise(node: Any) -> bool:
    """Whether it is a comparison of what is itself one, without parentheses: Spark takes such apart in another order."""
    if type(node) not in _LOOSE:
        return False
    return any(
        type(node.args.get(part)) in (*_LOOSE, exp.Not) for part in ("this", "expression", "low", "high")
    )


def obstacle(node: Any, named: Named) -> Any:
    """The smallest part for whose sake a condition is not compiled, or not without errors."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or | exp.Not):
        parts = [node.this] if isinstance(node, exp.Not) else [node.this, node.expression]
        refused = next((part for part in parts if safe(part, named) is None), None)
        if refused is not None:
            return obstacle(refused, named)
    return node


def safe(node: Any, named: Named) -> Expression | None:
    """The expression that a node is, if no row makes it fail."""
    found = compiled(node, named)
    return None if found is None or found.may_fail else found


def conjuncts(node: Any) -> Iterator[Any]:
    """The conditions that must all be true."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def is_escaped(node: Any) -> bool:
    """Spark has its own way with what is behind a backslash in a text."""
    above = node
    while above is not None and "script" not in above.meta:
        above = above.parent
    if above is None:
        return True
    text = above.meta["script"]
    if "start" in node.meta:
        text = text[node.meta["start"] : node.meta["end"] + 1]
    return "\\" in text


def _both(node: Any, named: Named) -> tuple[Expression, Expression] | None:
    one, other = _made(node.this, named), _made(node.expression, named)
    return None if one is None or other is None else (one, other)


def _alike(one: Expression, other: Expression) -> tuple[Expression, Expression] | None:
    """Both as the type that Spark takes them as."""
    if one.type in (types.DATE, types.TIMESTAMP) and _is_text(other):
        read = time_of(str(other.value), one.type)
        return None if read is None else (one, read)
    if other.type in (types.DATE, types.TIMESTAMP) and _is_text(one):
        read = time_of(str(one.value), other.type)
        return None if read is None else (read, other)
    kind = common_type(one.type, other.type)
    if kind is None:
        return None
    first, second = widened(one, kind), widened(other, kind)
    return None if first is None or second is None else (first, second)


def _is_text(found: Expression) -> bool:
    return found.is_literal and found.type == types.STRING


# -- conditions ---------------------------------------------------------------------------------------


def compare(operator: str, one: Expression, other: Expression) -> Expression | None:
    """Two values compared."""
    pair = _alike(one, other)
    if pair is None or pa.types.is_nested(pair[0].type) or pair[0].type == types.NULL:
        return None
    if _is_unwrapped(*pair) or _is_unwrapped(pair[1], pair[0]):
        return None
    if operator != "<=>":
        return call(operator, types.BOOLEAN, *pair)
    if all(each.is_literal for each in pair):
        return None
    return Expression("<=>", types.BOOLEAN, pair, nullable=False)


def _is_unwrapped(one: Expression, other: Expression) -> bool:
    """Spark compares what is cast as it was before, and does not look at it where it can never be this literal."""
    return one.operator == "cast" and one.may_fail and other.is_literal


def _comparison(node: Any, named: Named) -> Expression | None:
    pair = _both(node, named)
    return None if pair is None else compare(_COMPARED[type(node)], *pair)


def _distinct_from(node: Any, named: Named) -> Expression | None:
    pair = _both(node, named)
    return None if pair is None else negated(compare("<=>", *pair))


def connected(operator: str, one: Expression | None, other: Expression | None) -> Expression | None:
    """AND or OR of two conditions."""
    if one is None or other is None or not (_is_condition(one) and _is_condition(other)):
        return None
    if (one.is_literal or other.is_literal) and (
        one.may_fail or other.may_fail or one.is_literal == other.is_literal
    ):
        return None
    pair = tuple(
        Expression.literal(None, types.BOOLEAN) if each.type == types.NULL else each for each in (one, other)
    )
    return Expression(operator, types.BOOLEAN, pair, nullable=one.nullable or other.nullable)


def _is_condition(found: Expression) -> bool:
    return found.type in (types.BOOLEAN, types.NULL)


def _connection(node: Any, named: Named) -> Expression | None:
    operator = "and" if isinstance(node, exp.And) else "or"
    return connected(operator, _made(node.this, named), _made(node.expression, named))


def negated(found: Expression | None) -> Expression | None:
    return None if found is None or found.type != types.BOOLEAN else call("not", types.BOOLEAN, found)


def _not(node: Any, named: Named) -> Expression | None:
    return negated(_made(node.this, named))


def is_null(found: Expression | None) -> Expression | None:
    if found is None or found.is_literal or (found.may_fail and not found.nullable):
        return None  # Spark does not look where it knows
    return Expression("is_null", types.BOOLEAN, (found,), nullable=False)


def _is(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    if isinstance(node.expression, exp.Null):
        return is_null(found)
    asked = literal(node.expression)
    if found is None or asked is None or found.type != types.BOOLEAN or asked.type != types.BOOLEAN:
        return None
    return compare("<=>", found, asked)


def _between(node: Any, named: Named) -> Expression | None:
    value = _made(node.this, named)
    low, high = _made(node.args["low"], named), _made(node.args["high"], named)
    if value is None or low is None or high is None:
        return None
    return connected("and", compare(">=", value, low), compare("<=", value, high))


def _in(node: Any, named: Named) -> Expression | None:
    value = _made(node.this, named)
    listed = [_made(each, named) for each in node.expressions]
    if value is None or value.is_literal or not listed or pa.types.is_nested(value.type):
        return None
    read = [each and _as_listed(each, value.type) for each in listed]
    known = [each for each in read if each is not None and each.is_literal]
    if len(known) < len(listed):
        return None
    kind: pa.DataType | None = value.type
    for each in known:
        kind = None if kind is None else common_type(kind, each.type)
    if kind is None:
        return None
    parts = [widened(each, kind) for each in (value, *known)]
    made = tuple(each for each in parts if each is not None)
    if (
        len(made) < len(parts)
        or all(each.value is None for each in made[1:])
        or _is_unwrapped(made[0], made[1])
    ):
        return None
    return Expression("in", types.BOOLEAN, made, nullable=any(each.nullable for each in made))


def _as_listed(found: Expression, kind: pa.DataType) -> Expression | None:
    """A text among what a time is compared with is a time, as it is alone."""
    return (
        time_of(str(found.value), kind)
        if kind in (types.DATE, types.TIMESTAMP) and _is_text(found)
        else found
    )


# -- numbers ------------------------------------------------------------------------------------------


def _arithmetic(node: Any, named: Named) -> Expression | None:
    if isinstance(node.expression, exp.Interval) and isinstance(node, exp.Add | exp.Sub):
        return moved(_made(node.this, named), node.expression, 1 if isinstance(node, exp.Add) else -1)
    if isinstance(node.this, exp.Interval) and isinstance(node, exp.Add):
        return moved(_made(node.expression, named), node.this, 1)
    pair = _both(node, named)
    return None if pair is None else arithmetic(_ARITHMETIC[type(node)], *pair)


def arithmetic(operator: str, one: Expression, other: Expression) -> Expression | None:
    if is_decimal(one.type) or is_decimal(other.type):
        return _of_decimals(operator, one, other)
    kind = common_type(one.type, other.type)
    if kind is None or not (kind in types.BITS or kind in _FLOATING):
        return None
    first, second = widened(one, kind), widened(other, kind)
    if first is None or second is None:
        return None
    if operator in ("+", "-", "*") and kind in types.BITS and first.is_literal and second.is_literal:
        return _folded(operator, first, second)
    found = call(operator, kind, first, second)
    return None if found is None or _is_reordered(found) else found


def _of_decimals(operator: str, one: Expression, other: Expression) -> Expression | None:
    first, second = as_decimal(one), as_decimal(other)
    if first is None or second is None:
        return None
    kind = arithmetic_type(operator, first.type, second.type)
    return None if kind is None else call(operator, kind, first, second)


def _folded(operator: str, one: Expression, other: Expression) -> Expression | None:
    if one.value is None or other.value is None:
        return Expression.literal(None, one.type)
    left, right = int(one.value), int(other.value)
    number = left + right if operator == "+" else left - right if operator == "-" else left * right
    limit = 2 ** (types.BITS[one.type] - 1)
    return Expression.literal(number, one.type) if -limit <= number < limit else None


def _is_reordered(found: Expression) -> bool:
    """Spark makes one of two literals in a chain of + or *, and overflows elsewhere then."""
    if found.operator not in ("+", "*") or found.type not in types.BITS:
        return False
    waiting, literals = list(found.arguments), 0
    while waiting:
        each = waiting.pop()
        if each.operator == found.operator:
            waiting += each.arguments
        literals += each.is_literal
    return literals > 1


def _divided(node: Any, named: Named) -> Expression | None:
    pair = _both(node, named)
    if pair is None or (
        any(is_decimal(each.type) for each in pair) and not any(each.type in _FLOATING for each in pair)
    ):
        return None
    return _as_doubles("try_divide" if isinstance(node, exp.SafeDivide) else "/", *pair)


def _as_doubles(operator: str, one: Expression, other: Expression) -> Expression | None:
    if any(
        not (each.type in types.BITS or each.type in _FLOATING or is_decimal(each.type))
        for each in (one, other)
    ):
        return None
    first, second = widened(one, types.DOUBLE), widened(other, types.DOUBLE)
    return call(operator, types.DOUBLE, first, second)


def _whole_division(node: Any, named: Named) -> Expression | None:
    pair = _both(node, named)
    if pair is None or any(each.type not in types.BITS for each in pair):
        return None
    return call("div", types.BIGINT, widened(pair[0], types.BIGINT), widened(pair[1], types.BIGINT))


def _one_number(operator: str) -> Callable[[Any, Named], Expression | None]:
    def made(node: Any, named: Named) -> Expression | None:
        found = _made(node.this, named)
        if found is None or not (
            found.type in types.BITS or found.type in _FLOATING or is_decimal(found.type)
        ):
            return None
        if operator == "negate" and found.is_literal and found.type in types.BITS:
            return _folded("-", Expression.literal(0, found.type), found)
        return call(operator, found.type, found)

    return made


def _rounded(node: Any, named: Named) -> Expression | None:
    return rounded("floor" if isinstance(node, exp.Floor) else "ceil", _made(node.this, named))


def _not_a_number(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    if found is None or found.type not in _FLOATING or found.is_literal:
        return None
    return Expression("is_nan", types.BOOLEAN, (found,), nullable=False)


# -- choices ------------------------------------------------------------------------------------------


def _case(node: Any, named: Named) -> Expression | None:
    against = node.this and _made(node.this, named)
    if node.this and against is None:
        return None
    branches: list[Expression | None] = []
    for branch in node.args["ifs"]:
        asked = _made(branch.this, named)
        if against is not None and asked is not None:
            asked = compare("=", against, asked)
        branches += [asked, _made(branch.args["true"], named)]
    otherwise = node.args.get("default")
    return case(branches, _made(otherwise, named) if otherwise else Expression.literal(None, types.NULL))


def _if(node: Any, named: Named) -> Expression | None:
    otherwise = node.args.get("false")
    branch = [_made(node.this, named), _made(node.args["true"], named)]
    return case(branch, _made(otherwise, named) if otherwise else None)


def _nvl2(node: Any, named: Named) -> Expression | None:
    missing = is_null(_made(node.this, named))
    otherwise, value = _made(node.args["true"], named), node.args.get("false")
    return case([missing, _made(value, named) if value else None], otherwise)


def case(branches: list[Expression | None], otherwise: Expression | None) -> Expression | None:
    """`branches`: condition, value, condition, value, …"""
    known = [each for each in (*branches, otherwise) if each is not None]
    if len(known) < len(branches) + 1:
        return None
    conditions, values = known[:-1:2], [*known[1::2], known[-1]]
    if any(each.type != types.BOOLEAN or each.is_literal for each in conditions):
        return None  # which branch a literal leaves, Spark knows before it looks at the others
    if any(each.may_fail for each in conditions) and len(set(map(Expression.to_json, values))) < len(values):
        return None  # branches that are the same are one to Spark
    made = of_one_type(values)
    if made is None:
        return None
    pairs = [part for pair in zip(conditions, made, strict=False) for part in pair]
    nullable = any(each.nullable for each in made)
    return Expression("case", made[0].type, (*pairs, made[-1]), nullable=nullable)


def _coalesce(node: Any, named: Named) -> Expression | None:
    given = [_made(each, named) for each in (node.this, *node.expressions)]
    known = [each for each in given if each is not None]
    made = of_one_type(known) if len(known) == len(given) else None
    if made is None or all(each.is_literal for each in made):
        return None
    return Expression("coalesce", made[0].type, tuple(made), nullable=all(each.nullable for each in made))


def _extreme(node: Any, named: Named) -> Expression | None:
    operator = "greatest" if isinstance(node, exp.Greatest) else "least"
    return extreme(operator, [_made(each, named) for each in (node.this, *node.expressions)])


def _nullif(node: Any, named: Named) -> Expression | None:
    pair = _both(node, named)
    equal = None if pair is None else compare("=", *pair)
    return None if pair is None else case([equal, Expression.literal(None, types.NULL)], pair[0])


def _cast(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    kind = _CAST_TO.get(node.to.this) if not node.to.expressions else None
    return None if found is None or kind is None else cast(found, kind)


def _size(node: Any, named: Named) -> Expression | None:
    return size(_made(node.this, named))


def _element(node: Any, named: Named) -> Expression | None:
    return (
        element(_made(node.this, named), literal(node.expressions[0])) if len(node.expressions) == 1 else None
    )


# -- texts and times ----------------------------------------------------------------------------------


def _text(node: Any, named: Named) -> Expression | None:
    found = _made(node, named)
    return found if found is not None and found.type == types.STRING else None


def _length(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    return call("length", types.INT, found) if found and found.type in (types.STRING, types.BINARY) else None


def _concat(node: Any, named: Named) -> Expression | None:
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    if not parts:
        return None
    found = [_text(part, named) for part in parts]
    return call("concat", types.STRING, *found)


def _substring(node: Any, named: Named) -> Expression | None:
    length = node.args.get("length")
    count = literal(length.unnest()) if length else Expression.literal(_LONGEST, types.INT)
    return _part_of_text(_text(node.this, named), literal(node.args["start"].unnest()), count)


def _left(node: Any, named: Named) -> Expression | None:
    first = Expression.literal(1, types.INT)
    return _part_of_text(_text(node.this, named), first, literal(node.expression.unnest()))


def _part_of_text(
    text: Expression | None, start: Expression | None, count: Expression | None
) -> Expression | None:
    if start is None or count is None or start.type != types.INT or count.type != types.INT:
        return None
    return call("substring", types.STRING, text, start, count)


def _trim(node: Any, named: Named) -> Expression | None:
    operator = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
    return call(operator, types.STRING, _text(node.this, named))


def _text_test(node: Any, named: Named) -> Expression | None:
    text, pattern = _text(node.this, named), _text(node.expression, named)
    if pattern is None or not pattern.is_literal:
        return None
    found = call(_TEXT_TESTS.get(type(node), "like"), types.BOOLEAN, text, pattern)
    return negated(found) if node.args.get("negate") else found


def _date_part(node: Any, named: Named) -> Expression | None:
    inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    found = _made(inner, named)
    clock = _CLOCK_PARTS.get(type(node))
    if found is None or found.type not in (_STAMPS if clock else (*_STAMPS, types.DATE)):
        return None
    return call("date_part", types.INT, found, value=clock or _DATE_PARTS[type(node)])


def _date_trunc(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    above = node
    while above is not None and "script" not in above.meta:
        above = above.parent
    if found is None or found.type != types.TIMESTAMP or above is None or "call" not in node.meta:
        return None
    start, end = node.meta["call"]
    written = _DATE_TRUNC.match(above.meta["script"][start:end])  # sqlglot has made other words of some
    unit = _TRUNCATED_TO.get(written[1].lower()) if written else None
    return None if unit is None else call("date_trunc", types.TIMESTAMP, found, value=unit)


def _to_date(node: Any, named: Named) -> Expression | None:
    found = _made(node.this, named)
    return cast(found, types.DATE) if found is not None and found.type in (*_STAMPS, types.DATE) else None


_TWO, _ONE = frozenset({"this", "expression"}), frozenset({"this"})
_CASTING = frozenset({"this", "to", "_type"})
_MAKERS: dict[type[Any], tuple[Callable[[Any, Named], Expression | None], frozenset[str]]] = {
    **dict.fromkeys(_COMPARED, (_comparison, _TWO)),
    exp.NullSafeNEQ: (_distinct_from, _TWO),
    exp.And: (_connection, _TWO),
    exp.Or: (_connection, _TWO),
    exp.Not: (_not, _ONE),
    exp.Is: (_is, _TWO),
    exp.Between: (_between, frozenset({"this", "low", "high"})),
    exp.In: (_in, frozenset({"this", "expressions"})),
    **dict.fromkeys(_ARITHMETIC, (_arithmetic, _TWO)),
    exp.Div: (_divided, _TWO | {"typed", "safe"}),
    exp.SafeDivide: (_divided, _TWO),
    exp.IntDiv: (_whole_division, _TWO),
    exp.Neg: (_one_number("negate"), _ONE),
    exp.Abs: (_one_number("abs"), _ONE),
    exp.IsNan: (_not_a_number, _ONE),
    exp.Floor: (_rounded, _ONE),
    exp.Ceil: (_rounded, _ONE),
    exp.Case: (_case, frozenset({"this", "ifs", "default"})),
    exp.If: (_if, frozenset({"this", "true", "false"})),
    exp.Nvl2: (_nvl2, frozenset({"this", "true", "false"})),
    exp.Coalesce: (_coalesce, frozenset({"this", "expressions"})),
    exp.Nullif: (_nullif, _TWO),
    **dict.fromkeys(
        (exp.Greatest, exp.Least), (_extreme, frozenset({"this", "expressions", "ignore_nulls"}))
    ),
    exp.ArraySize: (_size, _ONE),
    exp.Bracket: (_element, frozenset({"this", "expressions"})),
    exp.Cast: (_cast, _CASTING),
    exp.TryCast: (_cast, _CASTING),
    exp.Length: (_length, _ONE),
    exp.Concat: (_concat, frozenset({"expressions", "safe"})),
    exp.DPipe: (_concat, _TWO | {"safe"}),
    exp.Substring: (_substring, frozenset({"this", "start", "length"})),
    exp.Left: (_left, _TWO),
    exp.Trim: (_trim, frozenset({"this", "position"})),
    **dict.fromkeys(_TEXT_TESTS, (_text_test, _TWO)),
    exp.Like: (_text_test, _TWO | {"negate"}),
    **dict.fromkeys((*_DATE_PARTS, *_CLOCK_PARTS), (_date_part, _ONE)),
    exp.TimestampTrunc: (_date_trunc, frozenset({"this", "unit"})),
    exp.TsOrDsToDate: (_to_date, frozenset({"this", "safe"})),
}
