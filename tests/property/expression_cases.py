"""Random rows of every type, and random expressions over them as SQL text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
SCHEMA = pa.schema(
    [
        *((name, getattr(pa, f"int{bits}")()) for name, bits in BITS.items()),
        ("few", pa.int32()),
        ("big", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("s", pa.string()),
        ("z", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ts2", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(7, 2)),
        ("m", pa.decimal128(14, 4)),
        ("arr", pa.list_(pa.field("element", pa.int32()))),
        ("st", pa.struct([pa.field("n", pa.int64()), pa.field("Inner", pa.struct([("s", pa.string())]))])),
    ]
)
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 0.1, 16777217.0, 1e300, 5e-324, -7.5, 2.0**63, -(2.0**63),
          2147483647.5, -2147483648.5, 127.9, -128.9, 3.0]  # fmt: skip
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "ä",
    "äb",
    " a ",
    "  ",
    "\U0001f600x",
    "\uffff",
    "a\nb",
    "it's",
    "1",
    "%",
    "_",
    "aXb",
    "\t",
]
DAYS = [
    0,
    -1,
    59,
    11016,
    19782,
    -719162,
    -25567,
    2932896,
    -141428,
    365,
    18262,
]  # leap days, 1582, years 1 and 9999
TIMES = [0, -1, 1, 951_782_399_999_999, 951_782_400_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999,
         -12_219_292_800_000_001, 1_768_471_200_000_000, 1_768_471_259_999_999]  # fmt: skip


def value(name: str, random: Random) -> Any:
    if name in BITS:
        limit = 2 ** (BITS[name] - 1)
        return random.choice(
            [0, 1, -1, 2, 7, -7, limit - 1, -limit, random.randint(-limit, limit - 1), random.randint(-9, 9)]
        )
    if name == "f":
        return random.choice([each for each in FLOATS if abs(each) < 1e38 or not math.isfinite(each)])
    day = random.choice([*DAYS, random.randint(-800_000, 2_900_000)])
    time = random.choice([*TIMES, random.randint(-(10**17), 2 * 10**17), day * 86_400_000_000])
    made: dict[str, Any] = {
        "few": random.randint(-3, 3),
        "big": random.choice([2**53, 2**53 + 1, -(2**53) - 1, 10**15, 3]),
        "x": random.choice([*FLOATS, random.uniform(-9, 9)]),
        "y": random.choice([0.0, 1.0, -1.0, math.nan, 2.5]),
        "s": random.choice(TEXTS),
        "z": random.choice(["a", "", "ä"]),
        "flag": random.random() < 0.5,
        "day": day,
        "ts": time,
        "ts2": time,
        "d": random.choice([0, 150, -150, 9_999_999, 10]),
        "m": random.choice([0, 1, -5, 10**14 - 1, 1 - 10**14, random.randint(-(10**7), 10**7)]),
        "arr": random.choice([[], [1], [1, None, -3], [None, 7]]),
        "st": {"n": random.choice([1, -5]), "Inner": random.choice([None, {"s": "a"}, {"s": None}])},
    }
    return made[name]


def rows(count: int, seed: int, *, nulls: float = 0.15) -> pa.RecordBatch:
    """Random rows; times are made of their numbers, for there are years that Python has not."""
    random = Random(seed)
    columns = []
    for field in SCHEMA:
        values = [None if random.random() < nulls else value(field.name, random) for _ in range(count)]
        if pa.types.is_temporal(field.type):
            columns.append(
                pa.array(values, pa.int32() if field.name == "day" else pa.int64()).cast(field.type)
            )
        elif pa.types.is_decimal(field.type):
            columns.append(_decimals(values, field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _decimals(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else Decimal(each).scaleb(-kind.scale) for each in values], kind)


@dataclass(frozen=True)
class Sort:
    """What kind of value an expression has: `number`, `text`, `truth`, `time`, `day`."""

    columns: tuple[str, ...]
    literals: tuple[str, ...]


SORTS = {
    "whole": Sort(("i8", "i16", "i32", "i64", "few", "big", "st.n", "t.few"),
                  ("0", "1", "-1", "2", "7", "10", "-128", "127", "3000000000", "-9223372036854775808", "5L", "3S", "2Y", "NULL")),
    "double": Sort(("x", "y", "f"), ("0e0", "1.5D", "-2.5e0", "1e300", "NULL", "1.5", "0.1", "-0.0D")),
    "money": Sort(("d", "m"), ("1.50", "0.1", "-7.25", "12345.678")),
    "text": Sort(("s", "z", "st.inner.s"), ("''", "'a'", "'ä'", "' a'", "NULL", "'it''s'")),
    "truth": Sort(("flag",), ("true", "false", "NULL")),
    "day": Sort(("day",), ("DATE '2000-02-29'", "DATE '1969-12-31'", "'2024-02-29'")),
    "time": Sort(("ts", "ts2"), ("TIMESTAMP '2000-02-29 23:59:59.999999'", "TIMESTAMP '1582-10-10 00:00:00'", "'2024-02-29'")),
}  # fmt: skip
COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "IS DISTINCT FROM")
PARTS = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "weekofyear")
UNITS = (
    "year",
    "QUARTER",
    "month",
    "week",
    "day",
    "Hour",
    "minute",
    "second",
    "millisecond",
    "mm",
    "dd",
    "yyyy",
)
INTERVALS = ("'1' DAY", "1 HOUR", "'-90' MINUTE", "5 SECONDS", "'7' DAYS", "'100' HOURS")
CASTS = {
    "whole": ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    "double": ("DOUBLE", "FLOAT"),
}


class ExpressionMaker:
    """Draws the text of an expression of a sort."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one(self, *options: Any) -> Any:
        return self._draw(st.sampled_from(options))

    def leaf(self, sort: str) -> str:
        found = SORTS[sort]
        return str(self.one(*found.columns, *found.columns, self.one(*found.literals)))

    def of(self, sort: str, depth: int) -> str:
        if depth <= 0 or self._draw(st.integers(0, 5)) == 0:
            return self.leaf(sort)
        if self._draw(st.integers(0, 5)) == 0:
            return self.choice(sort, depth - 1)
        return str(getattr(self, sort)(depth - 1))

    def choice(self, sort: str, depth: int) -> str:
        one, other, truth = self.of(sort, depth), self.of(sort, depth), self.of("truth", depth)
        return str(
            self.one(
                f"CASE WHEN {truth} THEN {one} ELSE {other} END",
                f"CASE WHEN {truth} THEN {one} END",
                f"CASE WHEN {truth} THEN {one} WHEN {self.of('truth', depth)} THEN {other} ELSE {self.leaf(sort)} END",
                f"CASE {other} WHEN {self.leaf(sort)} THEN {one} ELSE {other} END",
                f"IF({truth}, {one}, {other})",
                f"coalesce({one}, {other})",
                f"nvl({one}, {other})",
                f"nullif({one}, {other})",
                f"nvl2({other}, {one}, {self.leaf(sort)})",
                f"greatest({one}, {other})",
                f"least({one}, {other}, {self.leaf(sort)})",
            )
        )

    def number(self, depth: int) -> str:
        return self.of(self.one("whole", "whole", "double"), depth)

    def whole(self, depth: int) -> str:
        one, other = self.of("whole", depth), self.of("whole", depth)
        kind = self.one("op", "op", "op", "cast", "one", "length", "part")
        if kind == "op":
            return f"({one} {self.one('+', '-', '*', '%', 'div')} {other})"
        if kind == "cast":
            inner = self.of(self.one("whole", "double", "truth"), depth)
            return f"CAST({inner} AS {self.one(*CASTS['whole'])})"
        if kind == "one":
            return self.one(
                f"(- {one})",
                f"abs({one})",
                f"mod({one}, {other})",
                f"CAST({self.of('time', depth)} AS BIGINT)",
                f"{self.one('floor', 'ceil', 'ceiling')}({self.of('double', depth)})",
                self.one("size(arr)", "arr[0]", "arr[1]", "array_size(arr)"),
            )
        if kind == "length":
            return f"{self.one('length', 'char_length')}({self.of('text', depth)})"
        if self.one(True, False):
            return f"{self.one(*PARTS)}({self.of(self.one('time', 'day'), depth)})"
        return f"{self.one('hour', 'minute', 'second')}({self.of('time', depth)})"

    def double(self, depth: int) -> str:
        one, other = self.of("double", depth), self.number(depth)
        kind = self.one("op", "op", "divide", "cast", "one")
        if kind == "op":
            pair = self.one((one, other), (other, one))
            return f"({pair[0]} {self.one('+', '-', '*', '%')} {pair[1]})"
        if kind == "divide":
            return self.one(f"({self.number(depth)} / {other})", f"try_divide({one}, {other})")
        if kind == "cast":
            return f"CAST({other} AS {self.one(*CASTS['double'])})"
        return self.one(f"(- {one})", f"abs({one})")

    def money(self, depth: int) -> str:
        one = self.of("money", depth)
        other = self.one(
            self.of("money", depth), self.leaf("money"), "few", "i8", "i64", "2", "-30", "0", "1"
        )
        pair = self.one((one, other), (other, one))
        return str(self.one(f"({pair[0]} {self.one('+', '-', '*')} {pair[1]})", f"(- {one})", f"abs({one})"))

    def text(self, depth: int) -> str:
        one, other = self.of("text", depth), self.of("text", depth)
        return str(
            self.one(
                f"concat({one}, {other})",
                f"({one} || {other})",
                f"substring({one}, {self.one(-5, -2, -1, 0, 1, 2, 9)}, {self.one(-1, 0, 1, 2, 9)})",
                f"substr({one}, {self.one(-5, -2, 0, 1, 2)})",
                f"left({one}, {self.one(0, 1, 2)})",
                f"{self.one('trim', 'ltrim', 'rtrim')}({one})",
                f"CAST({self.of(self.one('whole', 'truth'), depth)} AS STRING)",
            )
        )

    def day(self, depth: int) -> str:
        return str(
            self.one(
                f"CAST({self.of('time', depth)} AS DATE)",
                f"to_date({self.of('time', depth)})",
                self.leaf("day"),
            )
        )

    def time(self, depth: int) -> str:
        return str(
            self.one(
                f"date_trunc('{self.one(*UNITS)}', {self.of('time', depth)})",
                f"CAST({self.of('day', depth)} AS TIMESTAMP)",
                f"({self.of('time', depth)} {self.one('+', '-')} INTERVAL {self.one(*INTERVALS)})",
                f"(INTERVAL {self.one(*INTERVALS)} + {self.of('time', depth)})",
            )
        )

    def truth(self, depth: int) -> str:
        kind = self.one(
            "compare",
            "compare",
            "compare",
            "logic",
            "logic",
            "not",
            "null",
            "in",
            "between",
            "like",
            "is",
            "cast",
            "decimal",
        )
        sort = self.one("whole", "double", "text", "day", "time", "truth", "money")
        one, other = self.of(sort, depth), self.of(sort, depth)
        if kind == "compare":
            if sort in ("whole", "double"):
                other = self.number(depth)
            if sort in ("day", "time"):
                other = self.of(self.one("day", "time"), depth)
            return f"({one} {self.one(*COMPARED)} {other})"
        if kind == "logic":
            return f"({self.of('truth', depth)} {self.one('AND', 'OR')} {self.of('truth', depth)})"
        if kind == "not":
            return f"(NOT {self.of('truth', depth)})"
        if kind == "null":
            return f"({one} IS {self.one('', 'NOT ')}NULL)"
        if kind == "in":
            listed = ", ".join(str(self.one(*SORTS[sort].literals)) for _ in range(self.one(1, 2, 6)))
            return f"({one} {self.one('', 'NOT ')}IN ({listed}))"
        if kind == "between":
            return f"({one} {self.one('', 'NOT ')}BETWEEN {other} AND {self.leaf(sort)})"
        if kind == "like":
            text = self.of("text", depth)
            patterns = (
                "'a%'",
                "'%a'",
                "'%a%'",
                "'a_'",
                "'_'",
                "'%'",
                "''",
                "'a%b'",
                "'it''s'",
                "'.*'",
                "'ä_'",
            )
            tests = [
                f"{name}({text}, {self.one(*patterns)})" for name in ("startswith", "endswith", "contains")
            ]
            return str(self.one(f"({text} {self.one('', 'NOT ')}LIKE {self.one(*patterns)})", *tests))
        if kind == "is":
            return str(
                self.one(
                    f"({self.of('truth', depth)} IS {self.one('', 'NOT ')}{self.one('TRUE', 'FALSE')})",
                    f"isnan({self.of('double', depth)})",
                )
            )
        if kind == "cast":
            return f"CAST({self.of('whole', depth)} AS BOOLEAN)"
        return f"(d {self.one(*COMPARED)} {self.one('0', '1.5', 'i32', 'i8', '-1.50', 'd', '99999.99', 'x')})"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    return ExpressionMaker(draw).of(draw(st.sampled_from(list(SORTS))), 3)
