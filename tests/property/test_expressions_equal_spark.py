"""What is worked out on Arrow rows is what Spark SQL says of the same rows: values, types, and errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from against_spark import answer, values, write_table
from expression_cases import SCHEMA, expressions, rows
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from forebay.errors import EvaluationError
from forebay.expression import Expression
from forebay.source.expressions import evaluate
from forebay.sql import parse_one
from forebay.sql.expressions import compiled
from forebay.sql.source_columns import columns_named

AT_ONCE = 25  # expressions that one Spark query works out


def made(text: str) -> Expression | None:
    node = parse_one(f"SELECT {text} FROM t").query.expressions[0]
    return compiled(node, columns_named({field.name.lower(): field for field in SCHEMA}, {"t", ""}))


def ours(batch: pa.RecordBatch, expression: Expression) -> pa.Array | None:
    try:
        found = evaluate(batch, expression)
    except EvaluationError:
        return None
    assert found.type == expression.type, expression
    found.validate(full=True)
    return found


def same(text: str, found: pa.Array, expected: pa.Table, place: int = 0) -> None:
    assert expected.schema.field(place).type == found.type, text
    assert values(found) == values(expected.column(place)), text


def check(spark: SparkSession, batch: pa.RecordBatch, texts: list[str]) -> None:
    known = {text: expression for text in texts if (expression := made(text)) is not None}
    for expression in known.values():
        assert Expression.from_json(expression.to_json()) == expression
    found = {text: ours(batch, expression) for text, expression in known.items()}
    good = [(text, each) for text, each in found.items() if each is not None]
    listed = ", ".join(f"{text} AS c{place}" for place, (text, _) in enumerate(good))
    expected = answer(spark, f"SELECT {listed} FROM t") if good else pa.table({})
    for place, (text, each) in enumerate(good):
        if expected is not None:
            same(text, each, expected, place)
        else:  # one of them fails: which?
            alone = answer(spark, f"SELECT {text} AS c FROM t")
            assert alone is not None, f"Spark raises an error: {text}"
            same(text, each, alone)
    for text, each in found.items():
        if each is None:
            assert answer(spark, f"SELECT {text} AS c FROM t") is None, f"Spark raises no error: {text}"


# To make a failing example smaller takes Spark minutes, and the expressions are short as they are.
@settings(phases=[Phase.explicit, Phase.generate], max_examples=settings.default.max_examples // 5)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.15]),
    st.lists(expressions(), min_size=AT_ONCE, max_size=AT_ONCE),
)
def test_random_expressions_over_random_rows(
    spark: SparkSession, folder: Path, seed: int, nulls: float, texts: list[str]
) -> None:
    batch = rows(25, seed, nulls=nulls)
    write_table(spark, folder, batch)
    check(spark, batch, texts)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i8 + i8", "overflow"),
        ("big * big * big", "overflow"),
        ("- i64", "overflow"),
        ("abs(i8)", "overflow"),
        ("CAST(i32 AS TINYINT)", "overflow"),
        ("CAST(x AS BIGINT)", "overflow"),
        ("i32 / few", "division by zero"),
        ("i32 % few", "division by zero"),
        ("i32 div few", "division by zero"),
        ("arr[2]", "an index that the array does not have"),
    ],
)
def test_an_error_names_its_kind_and_its_expression(text: str, kind: str) -> None:
    expression = made(text)
    assert expression is not None
    with pytest.raises(EvaluationError, match=f"{kind} in "):
        evaluate(rows(500, 1), expression)


@pytest.mark.parametrize(
    "text",
    ["upper(s)", "round(x, 2)", "rand()", "s > 1", "x || s", "1 / 0", "d + x", "d / 2", "m * m * m", "d % 2", "i32 + 1 + 2", "s LIKE 'a\\%'", "try_cast(s AS INT)", "flag = few IN (1)", "s LIKE 'a%' = flag",
     "CAST(x AS STRING)", "date_trunc('w', ts)", "t.nothing", "now()", "CASE WHEN i32 THEN 1 END", "greatest(s, few)", "greatest(1, 2)", "ts + INTERVAL '1' MONTH", "day + INTERVAL '1' DAY",
     "floor(x, 2)", "floor(d)", "arr[few]", "arr[-1]", "ts + INTERVAL '1.5' SECOND"],
)  # fmt: skip
def test_what_may_have_another_answer_in_spark_is_left_to_it(text: str) -> None:
    assert made(text) is None


BOUND = """
few + 1 * 2 % 3 - i16 div 2 ; few - 1 - 2 ; few / 2 * 3 ; - few % 2 ; -few * 2 ; few * -2 ; few DIV 2 * 2 ; few - -1
NOT flag = true ; NOT few > 1 AND flag ; flag OR flag AND NOT flag ; NOT NOT flag ; NOT flag IS NULL ; ! flag
few <> 1 AND NOT flag OR flag ; flag AND few = 1 OR NOT few < 0 AND flag
s || 'a' = z ; s || z LIKE 'a%' ; s || z || 'b' ; NOT s LIKE 'a%' ; s LIKE 'a%' = flag ; s NOT LIKE 'a%' AND flag
few = 1 IS NULL ; few > 1 IS NOT NULL ; few <=> 1 = true ; few = 1 = flag ; few > 1 = flag
few BETWEEN 1 AND 2 OR flag ; NOT few BETWEEN 1 AND 2 ; few BETWEEN 0 AND 1 = flag ; few NOT BETWEEN 0 AND 1 AND flag
NOT few IN (1) ; few + 1 IN (1, 2) ; few = 1 IN (true) ; few NOT IN (1, 2) = flag ; flag = few IN (1)
few + 1 > i16 - 1 AND flag ; few + x * 2 > y / 2.5 ; CASE WHEN flag THEN 1 ELSE 2 END + few ; few % 2 = 1 OR s = 'a' AND flag
few::BIGINT + 1 ; few + i8::INT * 2 ; -few::BIGINT ; few IS DISTINCT FROM 1 AND flag ; s LIKE 'a b%_c' ; s LIKE '_ ' ; s LIKE '%a%b%'
"""


def test_operators_bind_as_in_spark(spark: SparkSession, folder: Path) -> None:
    """Rows are few and their numbers small: nothing overflows."""
    batch = rows(60, 3).select(["few", "i8", "i16", "x", "y", "s", "z", "flag"])
    batch = batch.filter(pc.less(pc.abs(batch.column("i16")), 100))
    write_table(spark, folder, batch)
    texts = [text.strip() for line in BOUND.strip().splitlines() for text in line.split(" ; ")]
    check(spark, batch, texts)
    assert len([text for text in texts if made(text) is not None]) > 30
