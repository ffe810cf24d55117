"""`forebay_catalog.dead_letters` and `forebay_catalog.source_errors`: tables that a plain SELECT may read.

`laminar_catalog` is another name for the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from forebay import sql
from forebay.catalog import Catalog
from forebay.deadletter.entry import schema as letter_schema
from forebay.deadletter.outcomes import Outcomes
from forebay.errors import UnsupportedSqlError
from forebay.runtime.dead_letters import DeadLetters
from forebay.runtime.known import unknown
from forebay.runtime.letter_owners import owner_of
from forebay.runtime.source_errors import source_errors
from forebay.runtime.sources import Sources

SCHEMAS = ("forebay_catalog", "laminar_catalog")
TABLES = ("dead_letters", "source_errors")


class CatalogTables:
    """Makes a DataFrame of each. The files that it needs for that go with the session."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        sources: Sources,
        outcomes: Outcomes,
        spark: Callable[[], SparkSession],
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._sources = sources
        self._outcomes = outcomes
        self._spark = spark
        self._written: list[Path] = []

    def frame(self, name: str, query: Any) -> DataFrame | None:
        """For a query that reads it. None for a name that is not of a catalog's."""
        schema, _, table = name.lower().rpartition(".")
        if schema not in SCHEMAS:
            return None
        if table == "dead_letters":
            return self._dead_letters(sql.wanted(query, name, "source"))
        if table == "source_errors":
            return self._spark().createDataFrame(source_errors(self._catalog, self._sources))
        raise unknown("table", name, [f"{schema}.{known}" for known in TABLES])

    def _dead_letters(self, wanted: set[str] | None) -> DataFrame:
        """Of these sources, or of all. Read once, a few at a time, into a file beside the views: Spark reads it as often as it likes."""
        folder = self._home / "dead_letters" / "tables"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{uuid.uuid4().hex}.parquet"
        self._written.append(path)
        with pq.ParquetWriter(path, letter_schema()) as file:
            for name in self._sources.names():
                if wanted is not None and name not in wanted:
                    continue
                try:
                    letters = DeadLetters(
                        owner_of(name, self._sources, self._catalog), self._outcomes, self._home
                    )
                except UnsupportedSqlError:
                    continue  # a source whose policy writes none
                for batch in letters.batches():
                    file.write_batch(batch)
        return self._spark().read.parquet(str(path))

    def close(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)
