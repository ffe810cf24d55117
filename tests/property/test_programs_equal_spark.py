"""A view's query that a task runs by itself has the rows that Spark SQL has, and groups merge into Spark's groups."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from against_spark import answer, values, write_table
from expression_cases import SCHEMA, SORTS, ExpressionMaker, rows
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from forebay.errors import EvaluationError, SumOverflowError
from forebay.program import Grouping, Program, Selecting, output_schema, program_from_json
from forebay.source.expressions import evaluate, matching
from forebay.source.grouping import Groups
from forebay.sql import parse_one, plan
from forebay.sql.shape import shape
from forebay.sql.view_program import program_of
from forebay.views.groups.of_program import group_table
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable

SOME = settings(phases=[Phase.explicit, Phase.generate], max_examples=settings.default.max_examples // 5)
SUMMED = (
    "i8",
    "i16",
    "i32",
    "few",
    "y",
    "(i8 % 3)",
    "(few + i16)",
    "d",
    "m",
    "(m * 2)",
    "(d + few)",
)  # exact in whatever order
COUNTED = ("*", "1", "s", "x", "st.n", "(few + 1)")
COMPARED = (
    "i64",
    "x",
    "f",
    "ts",
    "day",
    "few",
    "d",
    "(x * 2)",
    "s",
    "z",
    "flag",
    "st.inner.s",
    "concat(s, z)",
)
ASKED = (
    "flag",
    "few > 0",
    "x > y",
    "s IS NULL",
    "s LIKE 'a%'",
    "few % 2 = 0",
    "i32 / few > 1",
    "NOT flag OR few < 1",
)
HAVING = ("count(*) > 1", "max(few) > 0 AND count(s) < 9", "min(s) < 'b' OR bool_or(flag)", "NOT sum(few) > 0", "avg(y) > 0.5",
          "count(*) FILTER (WHERE flag) = 0", "max(day) > DATE '2000-01-01'")  # fmt: skip
KEYS = ("few", "y", "s", "flag", "day", "(few % 2)", "f", "date_trunc('year', ts)", "d", "st.n", "(few > 0)")


@st.composite
def selections(draw: st.DrawFn) -> str:
    maker = ExpressionMaker(draw)
    where = f" WHERE {maker.of('truth', 3)}" if draw(st.booleans()) else ""
    if draw(st.integers(0, 4)) == 0:
        return f"SELECT {draw(st.sampled_from(['*', 't.*', '*, few + 1 AS more']))} FROM t{where}"
    sorts = draw(st.lists(st.sampled_from(list(SORTS)), min_size=1, max_size=3))
    outputs = [f"{maker.of(sort, 2)} AS c{place}" for place, sort in enumerate(sorts)]
    outputs += draw(st.sampled_from([[], ["I64"], ["t.s"], ["st.Inner"], ["st.n"]]))
    return f"SELECT {', '.join(outputs)} FROM {draw(tables())}{where}"


@st.composite
def tables(draw: st.DrawFn) -> str:
    """What a query reads that names the columns of `t`: the table, or a SELECT that passes them on."""
    inner = "SELECT * FROM t"
    for _ in range(draw(st.integers(0, 2))):
        where = draw(st.sampled_from(["flag", "few > 0 OR s = 'a'", "NOT flag", "x > 0"]))
        changed = draw(st.sampled_from(["*", "*, few AS less", "*, s || 'a' AS more, x * 2 AS double"]))
        inner = f"SELECT {changed} FROM ({inner} WHERE {where})"
        if changed != "*":
            break  # the columns that were added would be there twice
    return "t" if inner.endswith(" t") else f"({inner}) AS t"


WINDOWS = (
    "TUMBLE(ts, INTERVAL '1' MINUTE)", "TUMBLE(ts, INTERVAL '7' DAY)", "TUMBLE(ts, INTERVAL '13' SECOND)",
    "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)", "HOP(ts, INTERVAL '7' SECOND, INTERVAL '31' SECOND)",
    "HOP(ts, INTERVAL '2' DAY, INTERVAL '3' DAY)",
)  # fmt: skip


@st.composite
def groupings(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    names = [f"k{place}" for place in range(len(keys))]
    by = [
        draw(st.sampled_from([key, name, str(place + 1)]))
        for place, (key, name) in enumerate(zip(keys, names, strict=True))
    ]
    outputs = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    if draw(st.booleans()):
        by.append(draw(st.sampled_from(WINDOWS)))
        outputs += draw(
            st.sampled_from(
                [
                    ["window_start"],
                    ["window_start AS w", "window_end"],
                    ["window.end AS w", "window.start AS v"],
                ]
            )
        )
    for place in range(draw(st.integers(0 if outputs else 1, 3))):
        function = draw(
            st.sampled_from(
                ["count", "sum", "avg", "min", "max", "count_if", "bool_or", "bool_and", "every", "some"]
            )
        )
        pool = {"count": COUNTED, "sum": SUMMED, "avg": SUMMED, "min": COMPARED, "max": COMPARED}.get(
            function, ASKED
        )
        asked = f" FILTER (WHERE {draw(st.sampled_from(ASKED))})" if draw(st.booleans()) else ""
        outputs.append(f"{function}({draw(st.sampled_from(pool))}){asked} AS a{place}")
    if draw(st.booleans()):
        outputs.append("max(few) - min(few) AS spread")
    where = f" WHERE {ExpressionMaker(draw).of('truth', 2)}" if draw(st.booleans()) else ""
    group = f" GROUP BY {', '.join(by)}" if by else ""
    if len(by) == len(keys) and draw(st.integers(0, 4)) == 0:
        group = " GROUP BY ALL"
    if by and draw(st.booleans()):
        pool = HAVING + (
            (f"{names[0]} IS NOT NULL", f"{keys[0]} IS NOT NULL OR count(*) > 2") if keys else ()
        )
        group += f" HAVING {draw(st.sampled_from(pool))}"
    return f"SELECT {', '.join(outputs)} FROM {draw(tables())}{where}{group}"


def program(text: str, kind: type[Program]) -> Any:
    query = parse_one(text).query
    found = program_of(query, shape(query, query), SCHEMA)
    assert found is None or program_from_json(found.to_json()) == found
    assert found is None or isinstance(found, kind)
    return found


def outputs(rows_: pa.RecordBatch, found: Program) -> pa.Table:
    columns = [evaluate(rows_, expression) for _, expression in found.outputs]
    return pa.Table.from_arrays(columns, schema=output_schema(found))


def merged(batches: list[pa.RecordBatch], found: Grouping, root: Path) -> pa.Table:
    """As tasks and the driver do it: a task a batch, and two of them in one micro-batch."""
    public = ViewTable(root / "table")
    public.create(output_schema(found))
    table = group_table(ViewPaths(root), found, (), public)
    table.create()
    answers = []
    for batch in batches:
        groups = Groups(found)
        for start in range(0, batch.num_rows, 7):
            part = batch.slice(start, 7)
            groups.add(part if found.where is None else matching(part, found.where))
        answers.append([each for one in groups.finished() for each in one.to_batches()])
    for number in range(0, len(answers), 2):
        table.apply([each for one in answers[number : number + 2] for each in one], "q", number)
    return table.rows()


def plain(found: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows in any order. Which zero is the smaller depends on which came first."""
    columns = [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in found.columns
    ]
    return Counter(zip(*([repr(each) for each in values(column)] for column in columns), strict=True))


@SOME
@given(st.integers(0, 2**32), st.lists(selections(), min_size=3, max_size=3))
def test_selected_rows_are_sparks(spark: SparkSession, folder: Path, seed: int, queries: list[str]) -> None:
    batch = rows(25, seed)
    write_table(spark, folder, batch)
    for text in queries:
        found = program(text, Selecting)
        if found is None:
            continue
        expected = answer(spark, plan(parse_one(text).query, None).spark_sql)
        try:
            kept = batch if found.where is None else matching(batch, found.where)
            ours = outputs(kept, found)
        except EvaluationError:
            assert expected is None, f"Spark raises no error: {text}"
            continue
        assert expected is not None, f"Spark raises an error: {text}"
        assert [(each.name, each.type) for each in ours.schema] == [
            (each.name, each.type) for each in expected.schema
        ], text
        for mine, theirs in zip(ours.columns, expected.columns, strict=True):
            assert values(mine) == values(theirs), text


@SOME
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 40), max_size=3),
    st.lists(groupings(), min_size=3, max_size=3),
)
def test_groups_of_tasks_merge_into_sparks(
    spark: SparkSession, folder: Path, seed: int, cuts: list[int], queries: list[str]
) -> None:
    batch = rows(40, seed)
    write_table(spark, folder, batch)
    ends = [0, *sorted(cuts), 40]
    batches = [batch.slice(start, end - start) for start, end in pairwise(ends)]
    for text in queries:
        found = program(text, Grouping)
        if found is None:
            continue
        expected = answer(spark, plan(parse_one(text).query, "changes", columns=SCHEMA).spark_sql)
        try:
            with TemporaryDirectory() as root:
                ours = merged(batches, found, Path(root))
        except (EvaluationError, SumOverflowError):
            assert expected is None, f"Spark raises no error: {text}"
            continue
        assert expected is not None, f"Spark raises an error: {text}"
        assert [(each.name, each.type) for each in ours.schema] == [
            (each.name, each.type) for each in expected.schema
        ], text
        if found.keys or ours.num_rows:  # a view without keys has its one row when rows have come
            assert plain(ours) == plain(expected), text


@pytest.mark.parametrize(
    "text",
    ["SELECT DISTINCT s FROM t", "SELECT s, count(*) AS n FROM t GROUP BY s HAVING sum(few) / count(s) > 1",
     "SELECT count(*) AS n FROM t HAVING count(*) > 1", "SELECT s, sum(few) / count(s) AS n FROM t GROUP BY s HAVING count(*) > 1",
     "SELECT s, max(few) AS few FROM t GROUP BY s HAVING few > 0", "SELECT s, count(*) AS n FROM t GROUP BY s HAVING max(upper(s)) = 'A'", "SELECT rand() AS r FROM t",
     "SELECT a.s FROM t AS a JOIN t AS b ON a.s = b.s", "SELECT s, count(DISTINCT x) AS n FROM t GROUP BY s",
     "SELECT sum(few + i16) FILTER (WHERE flag) AS n FROM t", "SELECT count(*) FILTER (WHERE true) AS n FROM t",
     "SELECT k FROM (SELECT few + 1 AS k FROM t)", "SELECT k FROM (SELECT DISTINCT few AS k FROM t)", "SELECT s FROM (SELECT s, s FROM t)",
     "SELECT few FROM t WHERE few IN (SELECT few FROM t)", "SELECT k FROM (SELECT few AS k FROM t UNION ALL SELECT i32 FROM t)",
     "SELECT k FROM (SELECT few FROM t) AS q(k)", "SELECT few + count(*) AS n FROM t GROUP BY ALL", "SELECT explode(split(s, ',')) AS e FROM t",
     "SELECT window_start, count(*) AS n FROM t GROUP BY HOP(ts, INTERVAL '1' SECOND, INTERVAL '5' MINUTE)",
     "SELECT s FROM t WHERE s RLIKE 'a'", "SELECT NULL AS n FROM t", "SELECT sum(m * m) AS n FROM t", "SELECT avg(d) AS n FROM t"],
)  # fmt: skip
def test_what_only_spark_can_do_has_no_program(text: str) -> None:
    query = parse_one(text).query
    assert program_of(query, shape(query, query), SCHEMA) is None


@pytest.mark.parametrize(
    "text",
    ["WITH a AS (SELECT few AS k, x FROM t WHERE flag), b AS (SELECT k, x * 2 AS x FROM a) SELECT k, max(x) AS m FROM b WHERE x < 9 GROUP BY k",
     "SELECT st.n, q.* FROM (SELECT few AS k, s, st FROM t) AS q WHERE q.st.n > 0 AND s <> ''",
     "SELECT k, window_end, count_if(flag) AS n FROM (SELECT few AS k, ts, flag FROM t) GROUP BY TUMBLE(ts, INTERVAL '7' DAY), k",
     "SELECT few, flag, min(s) AS least, count(*) AS n FROM t GROUP BY ALL",
     "SELECT few AS k, flag, count(*) AS n FROM t GROUP BY ALL HAVING n > 2 AND k <> 0 AND min(s) < 'b'",
     "SELECT window_start, window_end, count(*) AS n FROM t GROUP BY TUMBLE(ts, INTERVAL '7' DAY) HAVING window_start > TIMESTAMP '2000-01-01 00:00:00' AND n > 1",
     "SELECT few, count(*) FILTER (WHERE i32 / few > 1) AS n FROM t WHERE few <> 0 GROUP BY few",
     "SELECT few, bool_or(flag) FILTER (WHERE x > 0) AS any_, every(s = 'a') AS all_, some(flag) AS some_ FROM t GROUP BY 1"],
)  # fmt: skip
def test_what_is_written_otherwise_has_a_program(spark: SparkSession, folder: Path, text: str) -> None:
    batch = rows(60, 11)
    write_table(spark, folder, batch)
    query = parse_one(text).query
    found = program_of(query, shape(query, query), SCHEMA)
    assert found is not None
    emit = "changes" if isinstance(found, Grouping) else None
    expected = answer(spark, plan(query, emit, columns=SCHEMA).spark_sql)
    assert expected is not None
    if isinstance(found, Grouping):
        with TemporaryDirectory() as root:
            ours = merged([batch.slice(0, 25), batch.slice(25)], found, Path(root))
    else:
        ours = outputs(batch if found.where is None else matching(batch, found.where), found)
    assert [(each.name, each.type) for each in ours.schema] == [
        (each.name, each.type) for each in expected.schema
    ]
    assert plain(ours) == plain(expected)


@pytest.mark.parametrize("window", [window for window in WINDOWS if window.startswith("HOP")])
def test_windows_that_overlap_are_sparks(spark: SparkSession, folder: Path, window: str) -> None:
    batch = rows(200, 7)
    write_table(spark, folder, batch)
    text = f"SELECT window_start, window_end, s, count(*) AS n, sum(few) AS total, max(ts) AS last FROM t GROUP BY {window}, s"
    found = program(text, Grouping)
    assert found is not None
    expected = answer(spark, plan(parse_one(text).query, "changes").spark_sql)
    assert expected is not None
    with TemporaryDirectory() as root:
        ours = merged([batch.slice(0, 90), batch.slice(90)], found, Path(root))
    assert plain(ours) == plain(expected)
