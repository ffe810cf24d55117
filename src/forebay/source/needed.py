"""Which columns of its sources a query looks at: the others need not travel to Spark.

Every column is decoded and checked all the same, since a record is good or bad whoever looks at it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay.source.spark_types import from_spark, to_spark
from forebay.sql import ViewPlan

log = logging.getLogger("forebay.source")


def needed_columns(spark: SparkSession, sources: Mapping[str, pa.Schema], query: str) -> dict[str, set[str]]:
    """By the name that the query gives each source. Spark's own optimiser says what is left of them.

    Where it does not, every column is needed. A query that Spark refuses is refused by who runs it.
    """
    everything = {name: set(schema.names) for name, schema in sources.items()}
    try:
        with _empty(spark, sources):
            plan = spark.sql(query)._jdf.queryExecution().optimizedPlan()
            return _kept(plan, sources) or everything
    except (PySparkException, Py4JError) as error:
        log.debug("the columns of a query are not known before it runs: %s", error)
        return everything


def adds_up_alike(spark: SparkSession, name: str, schema: pa.Schema, query: str, added: ViewPlan) -> bool:
    """Whether a query over the source's sums has the same columns as over its rows, by Spark's own word."""
    assert added.partial is not None
    try:
        with _empty(spark, {name: pa.schema([*schema, *added.partial.fields(schema)])}):
            return bool(spark.sql(query).schema == spark.sql(added.spark_sql).schema)
    except PySparkException as error:
        log.debug("a source cannot add up for a query: %s", error)
        return False


def returns(spark: SparkSession, name: str, schema: pa.Schema, query: str) -> pa.Schema | None:
    """The columns of a query's result by Spark's own word, all of them nullable; None where it refuses the query."""
    try:
        with _empty(spark, {name: schema}):
            found = from_spark(spark.sql(query).schema)
    except PySparkException as error:
        log.debug("Spark refuses a query: %s", error)
        return None
    return pa.schema([field.with_nullable(True) for field in found])


@contextmanager
def _empty(spark: SparkSession, sources: Mapping[str, pa.Schema]) -> Iterator[None]:
    """Each source as an empty temporary view."""
    try:
        for name, schema in sources.items():
            # Nullable, as a streaming source is: count(c) of a column without NULLs would need no column.
            nullable = to_spark(pa.schema([field.with_nullable(True) for field in schema]))
            spark.createDataFrame(spark.sparkContext.emptyRDD(), nullable).createOrReplaceTempView(name)
        yield
    finally:
        for name in sources:
            spark.catalog.dropTempView(name)


def _kept(plan: Any, sources: Mapping[str, pa.Schema]) -> dict[str, set[str]] | None:
    used = _ids(plan.outputSet())
    leaves = []
    pending = [plan]
    while pending:
        node = pending.pop()
        if not node.subqueries().isEmpty():
            return None
        children = _items(node.children())
        if children:
            used |= _ids(node.references())
            pending += children
        else:
            leaves.append([(column.name(), column.exprId().id()) for column in _items(node.output())])
    found: dict[str, set[str]] = {name: set() for name in sources}
    for leaf in leaves:
        names = [name for name, _ in leaf]
        owners = [source for source, schema in sources.items() if schema.names == names]
        if not owners:
            return None
        for source in owners:
            found[source] |= {name for name, number in leaf if number in used}
    return found


def _ids(attributes: Any) -> set[int]:
    return {attribute.exprId().id() for attribute in _items(attributes.toSeq())}


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
