"""Views over a change log: what Spark is given, what is written, and what a reader sees.

`sql/zsets.py` has put the weights into the query. A view of "groups" is written as its groups stand; one of
"rows" keeps each row once, with how often it is there in `_weight`, and a SELECT repeats it as often.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from forebay import sql
from forebay.column_types import BIGINT
from forebay.connectors.contract import SourceConnector
from forebay.errors import ChangeLogError, UnsupportedSqlError
from forebay.source.spark_types import from_spark, to_spark, type_from_spark
from forebay.sql import WEIGHT
from forebay.views.table import ViewTable


def row_schema(connector: SourceConnector) -> pa.Schema:
    """The columns that a view sees: of a change log those of the row and its weight, not those of the change."""
    full = connector.full_schema()
    if not connector.change_log:
        return full
    own = {*connector.config.schema.names, WEIGHT}
    return pa.schema([field for field in full if field.name in own])


def only(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The source's frame with these columns alone."""
    return frame if frame.columns == schema.names else frame.select(*map(_column, schema.names))


def of(connector: SourceConnector, spark: Callable[[], SparkSession]) -> sql.ChangeLog:
    """What planning must know of this source."""
    schema = row_schema(connector)
    shown = set(schema.names) - {WEIGHT}
    hidden = {name.lower() for name in connector.full_schema().names if name not in shown}

    def type_of(expression: str, alias: str) -> pa.DataType:
        nullable = to_spark(pa.schema([field.with_nullable(True) for field in schema]))
        empty = spark().createDataFrame(spark().sparkContext.emptyRDD(), nullable)
        return type_from_spark(empty.alias(alias).selectExpr(f"({expression})").schema[0].dataType)

    return sql.ChangeLog(hidden, type_of)


def checked(frame: DataFrame, kept: str) -> DataFrame:
    """The result of a view's query, its weight as BIGINT and last; refused where rows cannot be compared."""
    if WEIGHT not in frame.columns:
        raise UnsupportedSqlError(f"the rows of a change log need their weight: leave out EXCEPT ({WEIGHT})")
    for field in frame.schema.fields if kept == "rows" else ():
        if _has_map(field.dataType):
            raise UnsupportedSqlError(
                f"column '{field.name}' holds a MAP: two of them cannot be compared, so no row could be taken back",
                remedy=f"select what you need of it, for example {field.name}['a'] AS a",
            )
    others = [_column(name) for name in frame.columns if name != WEIGHT]
    return frame.select(*others, F.col(WEIGHT).cast("bigint").alias(WEIGHT))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _has_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in kind.fields)
        case _:
            return False


def table_schema(schema: StructType, kept: str | None) -> pa.Schema:
    """Of the view's table."""
    fields = from_spark(schema)
    if kept is None:
        return fields
    own = [field for field in fields if field.name != WEIGHT]
    return pa.schema([*own, pa.field(WEIGHT, BIGINT)] if kept == "rows" else own)


def changes(frame: DataFrame, kept: str) -> pa.Table:
    """What one batch changes: groups as they stand now, or rows with how many came."""
    if kept == "groups":
        return frame.toArrow()
    others = [_column(name) for name in frame.columns if name != WEIGHT]
    return frame.groupBy(*others).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0").toArrow()


def write(table: ViewTable, rows: pa.Table, kept: str, keys: tuple[str, ...], query: str, batch: int) -> None:
    """The changes of one batch into the view's table."""
    if kept == "rows":
        table.add_up(rows, WEIGHT, query, batch)
        return
    below = pc.sum(pc.less(rows.column(WEIGHT), 0)).as_py()
    if below:
        raise ChangeLogError(f"{below} groups have had more rows taken back than there were")
    table.replace(rows, keys, WEIGHT, query, batch)


def check(table: ViewTable, view: str) -> None:
    """A row that is there less than no times was taken back without ever having been added."""
    least = table.least(WEIGHT)
    if least is not None and least < 0:
        raise ChangeLogError(f"view '{view}': a row was taken back that had never been there")


def repeated(frame: DataFrame) -> DataFrame:
    """The rows of a view as a reader wants them: each as often as it is there."""
    there = frame.where(F.col(WEIGHT) > 0)
    return there.withColumn(WEIGHT, F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(WEIGHT)))).drop(
        WEIGHT
    )
