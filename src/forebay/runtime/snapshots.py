"""What views and sources hold now, as DataFrames: for a SELECT that Spark answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from forebay import sql
from forebay.answers.spark_returns import schema_as_spark_returns
from forebay.catalog import Catalog
from forebay.object_path import ObjectPath, parquet_file, store_settings, table_path, take_settings
from forebay.runtime import changelog
from forebay.runtime.definitions import groups_of_view, table_of_view
from forebay.runtime.known import unknown
from forebay.runtime.late_tables import TABLE, late_table
from forebay.runtime.sources import Sources
from forebay.runtime.spark_refusals import refused, registered
from forebay.source.stream import batch_frame
from forebay.views.compaction import as_in
from forebay.views.table import ViewTable

# What Parquet knows of the values in a file leaves out NaN and tells -0.0 from 0.0: by it Spark would skip rows that
# its own WHERE asks for.
EVERY_ROW = {
    f"parquet.filter.{way}.enabled": "false" for way in ("stats", "dictionary", "columnindex", "bloom")
}


def _reading(
    schema: pa.Schema, stores: Mapping[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: names of files in an object store go in, their rows come out. Spark itself would need jars."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        take_settings(stores)
        for batch in batches:
            for name in batch.column(0).to_pylist():
                with parquet_file(table_path(name)) as file:
                    for rows in file.iter_batches():
                        yield as_in(rows, schema)

    return read


# A table of the catalog by its name, for a query; None if it is none.
CatalogTable = Callable[[str, Any, SparkSession], DataFrame | None]


class Snapshots:
    """Of a session's home."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        sources: Sources,
        spark: Callable[[], SparkSession],
        catalog_table: CatalogTable,
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._sources = sources
        self._spark = spark
        self._catalog_table = catalog_table
        self._selects = itertools.count()

    def select(self, statement: sql.Select) -> DataFrame:
        """A query over views and sources as they are now."""
        spark = self._spark()
        temporary: dict[str, str] = {}
        try:
            for name in sql.tables(statement.query):
                # Of this SELECT alone: another may read the same view at the same time.
                temporary[name] = f"forebay_read_{next(self._selects)}_{name.replace('.', '_')}"
                table = self._catalog_table(name, statement.query, spark)
                frame = table if table is not None else self._snapshot(name)
                frame.createOrReplaceTempView(temporary[name])
            return spark.sql(sql.plan_select(statement.query, temporary))
        except AnalysisException as error:
            raise refused(error, temporary, statement.query, lambda: registered(spark)) from None
        finally:
            for view in temporary.values():
                spark.catalog.dropTempView(view)

    def _snapshot(self, name: str) -> DataFrame:
        spark = self._spark()
        known = self._catalog.get(name)
        if known is None:
            raise unknown(
                "view or source",
                name,
                [*(view.name for view in self._catalog.all("view")), *self._sources.names()],
            )
        if known.kind == "source":
            source = self._sources.statement(name)
            return batch_frame(spark, self._sources.config(source), self._sources.connector(name))
        if known.kind == TABLE:
            return self._files(late_table(self._home, known))
        groups = groups_of_view(self._home, self._catalog, name)
        if groups is not None:  # of which its table may be behind
            rows = groups.rows()
            return spark.createDataFrame(rows.cast(schema_as_spark_returns(rows.schema)))
        frame = self._files(table_of_view(self._home, self._catalog, name))
        return changelog.repeated(frame) if known.detail.get("kept") == "rows" else frame

    def _files(self, table: ViewTable) -> DataFrame:
        """What is in the files of a table now."""
        spark = self._spark()
        schema = schema_as_spark_returns(pa.schema(table.open().schema().to_arrow()))
        empty = spark.createDataFrame(schema.empty_table())
        files = table.files()
        if files and isinstance(table.path, ObjectPath):
            names = spark.createDataFrame([(file,) for file in files], "file string").repartition(len(files))
            return names.mapInArrow(_reading(schema, store_settings()), empty.schema)
        kinds = empty.schema.simpleString()
        options = EVERY_ROW if "float" in kinds or "double" in kinds else {}
        return spark.read.options(**options).schema(empty.schema).parquet(*files) if files else empty
