"""Random tables and random queries of the shape that is answered without Spark."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NESTED = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.string()))])
FLOATS = [
    0.0,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    1.5,
    -2.25,
    0.1,
    16777216.0,
    16777217.0,
    1e300,
    5e-324,
    -7.5,
]
TEXTS = [
    "",
    "a",
    "A",
    "b",
    "ä",
    "z",
    "zz",
    "\U0001f600",
    "\uffff",
    "a b",
    "null",
    "it's",
    "1",
    "\x00",
    "1970-01-01",
]
MOMENTS = [
    dt.datetime(1, 1, 1), dt.datetime(1582, 10, 10), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1), dt.datetime(2026, 1, 15), dt.datetime(2026, 1, 15, 10, 0, 0, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
DIGITS = {"d5": (5, 2), "d12": (12, 2), "d20": (20, 4), "d38": (38, 10), "tiny": (38, 38)}
KINDS: dict[str, pa.DataType] = {
    **{name: getattr(pa, f"int{bits}")() for name, bits in BITS.items()},
    "few": pa.int64(),
    "Price": pa.float64(),
    "f": pa.float32(),
    "name": pa.string(),
    "data": pa.binary(),
    "flag": pa.bool_(),
    **{name: pa.decimal128(*digits) for name, digits in DIGITS.items()},
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"),
}
PARTED = {"st": NESTED, "arr": pa.list_(pa.float64()), "m": pa.map_(pa.string(), pa.int64())}
COLUMNS = KINDS | PARTED
NUMBERS = (*BITS, "few", *DIGITS)


def value(name: str, random: Random, *, extreme: bool = True) -> Any:
    """One that a column may hold: often one of a few, so that values meet again, and the ends of its type."""
    if name in BITS or name in DIGITS:
        limit = 2 ** (BITS[name] - 1) if name in BITS else 10 ** DIGITS[name][0] - 1
        ends = [limit - 1, -limit] if extreme else [5]
        whole = random.choice(
            [0, 1, -1, random.choice(ends), random.randint(-9, 9), random.randint(-limit, limit - 1)]
        )
        if not extreme:
            whole %= 10**9 + 7 if limit > 10**9 else 97
        return (
            whole
            if name in BITS
            else Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -DIGITS[name][1]))
        )
    moment = random.choice(
        [*MOMENTS, MOMENTS[3] + dt.timedelta(microseconds=random.randint(-(10**16), 10**16))]
    )
    text = random.choice([*TEXTS, chr(random.randint(0x20, 0x7E)).replace("\\", "/")])
    made: dict[str, Any] = {
        "few": random.randint(0, 2),
        "Price": random.choice([*FLOATS, random.uniform(-9, 9)]),
        "f": random.choice([*FLOATS[:9], -7.5]),
        "name": text,
        "data": text.encode(),
        "flag": random.random() < 0.5,
        "day": moment.date(),
        "ts": moment.replace(tzinfo=dt.UTC),
        "ntz": moment,
        "st": {"a": random.randint(-9, 9), "b": random.choice([None, [], [None, text]])},
        "arr": random.choice([[], [None, random.choice(FLOATS)], [1.5]]),
        "m": random.choice([[], [(text, None)], [("a", 1), ("b", 2)]]),
    }
    return made[name]


def table(rows: int, seed: int, *, extreme: bool = True) -> pa.Table:
    random = Random(seed)
    columns = {
        name: [None if random.random() < 0.15 else value(name, random, extreme=extreme) for _ in range(rows)]
        for name in COLUMNS
    }
    return pa.table({name: pa.array(values, COLUMNS[name]) for name, values in columns.items()})


TABLES = st.builds(table, st.sampled_from([0, 1, 7, 60]), st.integers(0, 2**32))


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
    found = value(name, draw(st.randoms(use_true_random=False)))
    if isinstance(found, bool):
        return str(found).upper()
    if isinstance(found, str):
        return "'" + found.replace("'", "''") + "'"
    if isinstance(found, dt.datetime):
        text = found.replace(tzinfo=None).isoformat(sep=draw(st.sampled_from(" T")))
        day = found.date().isoformat()
        return draw(st.sampled_from([f"'{text}'", f"TIMESTAMP '{text}'", f"DATE '{day}'", f"'{day}'"]))
    if isinstance(found, dt.date):
        return draw(st.sampled_from(["", "DATE "])) + f"'{found.isoformat()}'"
    if isinstance(found, float):
        if not math.isfinite(found):
            found = 7.5
        forms = [
            f"{found:.17e}",
            repr(round(found, 3)) if abs(found) < 1e6 else "12.5",
            "3",
            "-0.0",
            "16777217",
        ]
        return draw(st.sampled_from(forms)).replace("e-324", "e-300")
    if isinstance(found, Decimal):
        return draw(st.sampled_from([f"{found:f}", "0", "1.5", "-2"])) if name != "tiny" else f"{found:f}"
    return str(found)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([name for name in KINDS if name != "data"]))
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
        listed, names = "*", [(place, name) for place, name in enumerate(COLUMNS) if name in KINDS]
    else:
        pool = list(KINDS) if distinct else list(COLUMNS)
        chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4, unique=True))
        aliases = [draw(st.none() | st.just(f"a{place}") | st.just("few")) for place in range(len(chosen))]
        if aliases.count("few") + ("few" in chosen) > 1:
            aliases = [None] * len(chosen)
        outputs = [(draw(cased(name)), alias) for name, alias in zip(chosen, aliases, strict=True)]
        listed = ", ".join(text if alias is None else f"{text} AS {alias}" for text, alias in outputs)
        names = [
            (place, alias or name)
            for place, (name, alias) in enumerate(zip(chosen, aliases, strict=True))
            if name in KINDS
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
    pool = tuple(COLUMNS) if function == "COUNT" else tuple(KINDS)
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
