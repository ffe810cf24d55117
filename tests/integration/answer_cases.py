"""Random tables and random queries of the shape that is answered without Spark."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

FLOATS = st.sampled_from(
    [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 0.1, 16777217.0, 1e300, 5e-324]
)
SINGLE = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 16777216.0]) | st.floats(
    width=32
)
TEXTS = st.sampled_from(
    ["", "a", "A", "b", "ä", "z", "\U0001f600", "\uffff", "a b", "null", "it's", "1"]
) | st.text(st.characters(codec="utf-8", exclude_characters="\\"), max_size=3)


def whole(bits: int) -> st.SearchStrategy[int]:
    limit = 2 ** (bits - 1)
    return (
        st.sampled_from([0, 1, -1, 2, limit - 1, -limit])
        | st.integers(-5, 5)
        | st.integers(-limit, limit - 1)
    )


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    numbers = st.sampled_from([0, 1, -1, limit, -limit]) | st.integers(-99, 99) | st.integers(-limit, limit)
    return numbers.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)) | st.sampled_from(
    [dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 15, 10)]
)
DAYS = st.dates() | st.sampled_from([dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(2026, 1, 15)])
NESTED = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.string()))])

SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), whole(8)),
    "i16": (pa.int16(), whole(16)),
    "i32": (pa.int32(), whole(32)),
    "i64": (pa.int64(), whole(64)),
    "few": (pa.int64(), st.integers(0, 2)),
    "Price": (pa.float64(), FLOATS),
    "f": (pa.float32(), SINGLE),
    "name": (pa.string(), TEXTS),
    "data": (pa.binary(), st.binary(max_size=3)),
    "flag": (pa.bool_(), st.booleans()),
    "d5": (pa.decimal128(5, 2), decimals(5, 2)),
    "d20": (pa.decimal128(20, 4), decimals(20, 4)),
    "d38": (pa.decimal128(38, 10), decimals(38, 10)),
    "tiny": (pa.decimal128(38, 38), decimals(38, 38)),
    "day": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda at: at.replace(tzinfo=dt.UTC))),
    "ntz": (pa.timestamp("us"), MOMENTS),
}
PARTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "st": (NESTED, st.fixed_dictionaries({"a": whole(64), "b": st.none() | st.lists(st.none() | TEXTS, max_size=2)})),
    "arr": (pa.list_(pa.float64()), st.lists(st.none() | FLOATS, max_size=3)),
    "m": (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXTS, st.none() | whole(64), max_size=2).map(
        lambda found: list(found.items())
    )),
}  # fmt: skip
COLUMNS = SCALARS | PARTED
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | some for name, (_, some) in COLUMNS.items()}), max_size=12
)
NUMBERS = ("i8", "i16", "i32", "i64", "few", "d5", "d20", "d38", "tiny")


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


@dataclass(frozen=True)
class Query:
    """`keys` are the places of the outputs that it is ordered by, first of all of these; `sums`: it may be too large."""

    text: str
    keys: tuple[int, ...] = ()
    tail: str = ""
    sums: bool = False


def cased(name: str) -> st.SearchStrategy[str]:
    """As somebody may write it."""
    return st.sampled_from([name, name.upper(), name.lower(), f"t.{name}", f"`{name}`"])


@st.composite
def literals(draw: st.DrawFn, name: str) -> str:
    value = draw(SCALARS[name][1])
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(sep=draw(st.sampled_from(" T")))
        day = value.date().isoformat()
        return draw(st.sampled_from([f"'{text}'", f"TIMESTAMP '{text}'", f"DATE '{day}'", f"'{day}'"]))
    if isinstance(value, dt.date):
        return draw(st.sampled_from(["", "DATE "])) + f"'{value.isoformat()}'"
    if isinstance(value, float):
        if not math.isfinite(value):
            value = 7.5
        forms = [
            f"{value:.17e}",
            repr(round(value, 3)) if abs(value) < 1e6 else "12.5",
            "3",
            "-0.0",
            "16777217",
        ]
        return draw(st.sampled_from(forms)).replace("e-324", "e-300")
    if isinstance(value, Decimal):
        return draw(st.sampled_from([f"{value:f}", "0", "1.5", "-2"])) if name != "tiny" else f"{value:f}"
    return str(value)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([name for name in SCALARS if name != "data"]))
    column = draw(cased(name))
    kind = draw(
        st.sampled_from(
            [
                "null",
                "in",
                "between",
                "turned",
                "columns",
                *(["=", "<>", "<", "<=", ">", ">=", "!=", "=="] * 2),
            ]
        )
    )
    if kind == "null":
        anything = draw(cased(draw(st.sampled_from(list(COLUMNS)))))
        return f"{anything} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "in":
        listed = ", ".join(draw(st.lists(literals(name), min_size=1, max_size=3)))
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({listed})"
    if kind == "between":
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(literals(name))} AND {draw(literals(name))}"
    if kind == "turned":
        return f"{draw(literals(name))} {draw(st.sampled_from(['<', '>=', '=']))} {column}"
    if kind == "columns":
        pairs = [("i64", "few"), ("ts", "ntz"), ("Price", "Price"), (name, name), ("data", "data")]
        one, other = draw(st.sampled_from(pairs))
        return f"{one} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(cased(other))}"
    if name == "flag" and draw(st.booleans()):
        return column
    return f"{column} {kind} {draw(literals(name))}"


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda part: f"NOT ({part})"),
        inner.map(lambda part: f"NOT {part}"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    ),
    max_leaves=4,
)
DIRECTIONS = st.sampled_from(["", " ASC", " DESC", " NULLS LAST", " DESC NULLS FIRST", " ASC NULLS FIRST"])


@st.composite
def tails(draw: st.DrawFn) -> str:
    limit, offset = draw(st.none() | st.integers(0, 5)), draw(st.none() | st.integers(0, 3))
    return ("" if limit is None else f" LIMIT {limit}") + ("" if offset is None else f" OFFSET {offset}")


@st.composite
def ordered(draw: st.DrawFn, names: list[tuple[int, str]]) -> tuple[tuple[int, ...], str]:
    """Some of the outputs, by name or by place, and how each is sorted."""
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
    keys = [f"{draw(st.sampled_from([name, str(place + 1)]))}{draw(DIRECTIONS)}" for place, name in chosen]
    return tuple(place for place, _ in chosen), f" ORDER BY {', '.join(keys)}" if keys else ""


@st.composite
def selections(draw: st.DrawFn) -> Query:
    distinct = draw(st.booleans()) and draw(st.booleans())
    where = f" WHERE {draw(CONDITIONS)}" if draw(st.booleans()) else ""
    if not distinct and draw(st.integers(0, 4)) == 0:
        listed, names = "*", [(place, name) for place, name in enumerate(COLUMNS) if name in SCALARS]
    else:
        pool = list(SCALARS) if distinct else list(COLUMNS)
        chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4, unique=True))
        aliases = [draw(st.none() | st.just(f"a{place}") | st.just("few")) for place in range(len(chosen))]
        if aliases.count("few") + ("few" in chosen) > 1:
            aliases = [None] * len(chosen)
        outputs = [(draw(cased(name)), alias) for name, alias in zip(chosen, aliases, strict=True)]
        listed = ", ".join(text if alias is None else f"{text} AS {alias}" for text, alias in outputs)
        names = [
            (place, alias or name)
            for place, (name, alias) in enumerate(zip(chosen, aliases, strict=True))
            if name in SCALARS
        ]
    keys, order = draw(ordered(names))
    word = "DISTINCT " if distinct else ""
    return Query(f"SELECT {word}{listed} FROM t{where}{order}", keys, draw(tails()))


@st.composite
def totals(draw: st.DrawFn) -> str:
    function = draw(st.sampled_from(["count(*)", "count(1)", "COUNT", "min", "max", "MIN", "sum", "avg"]))
    if "(" in function:
        return function
    if function in ("sum", "avg"):
        pool = NUMBERS if function == "sum" else tuple(name for name in NUMBERS if name != "d5")
        return f"{function}({draw(cased(draw(st.sampled_from(pool))))})"
    pool = tuple(COLUMNS) if function == "COUNT" else tuple(SCALARS)
    return f"{function}({draw(cased(draw(st.sampled_from(pool))))})"


@st.composite
def groupings(draw: st.DrawFn) -> Query:
    keys = draw(
        st.lists(
            st.sampled_from(["few", "flag", "name", "Price", "f", "d5", "i8", "day"]), max_size=2, unique=True
        )
    )
    asked = draw(st.lists(totals(), min_size=0 if keys else 1, max_size=3))
    where = f" WHERE {draw(CONDITIONS)}" if draw(st.booleans()) else ""
    outputs = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    outputs += [f"{total} AS t{place}" for place, total in enumerate(asked)]
    names = [(place, output.rpartition(" AS ")[2]) for place, output in enumerate(outputs)]
    by = [draw(st.sampled_from([key, f"k{place}", str(place + 1)])) for place, key in enumerate(keys)]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    having = ""
    if draw(st.booleans()):
        having = " HAVING " + draw(
            st.sampled_from(["count(*) > 1", "NOT count(*) = 2", "max(few) IS NOT NULL OR count(*) < 3"])
        )
    places, order = draw(ordered(names))
    sums = any(total.startswith(("sum", "avg")) for total in asked)
    return Query(
        f"SELECT {', '.join(outputs)} FROM t{where}{group}{having}{order}", places, draw(tails()), sums
    )


QUERIES = st.lists(selections() | groupings(), min_size=4, max_size=4)
