"""`forebay_catalog.dead_letters`, `source_errors`, `sources` and others: tables that a plain SELECT may read.

`laminar_catalog` is another name for the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay import sql
from forebay.answers.view_tables import Table
from forebay.catalog import Catalog
from forebay.deadletter.entry import schema as letter_schema
from forebay.errors import UnknownObjectError, UnsupportedSqlError
from forebay.runtime.health_tables import AUDIT, BATCHES, EVENTS, PARTITIONS, SOURCES, HealthTables
from forebay.runtime.known import KnownSources, unknown
from forebay.runtime.letter_groups import GROUPS, group_rows
from forebay.runtime.source_errors import SCHEMA, source_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from forebay.deadletter.outcomes import Outcomes

SCHEMAS = ("forebay_catalog", "laminar_catalog")
TABLES = (
    "dead_letters",
    "dead_letter_groups",
    "source_errors",
    "sources",
    "partitions",
    "batches",
    "events",
    "audit",
)


class CatalogTables:
    """Reads them. For Spark they become files, which go with the session."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        sources: KnownSources,
        outcomes: Callable[[], Outcomes],
        health: HealthTables,
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._sources = sources
        self._outcomes = outcomes
        self._small: dict[str, tuple[pa.Schema, Callable[[], pa.Table]]] = {
            "dead_letter_groups": (GROUPS, lambda: group_rows(home, catalog, sources, outcomes())),
            "source_errors": (SCHEMA, lambda: source_errors(catalog, sources)),
            "sources": (SOURCES, health.source_rows),
            "partitions": (PARTITIONS, health.partition_rows),
            "batches": (BATCHES, health.batch_rows),
            "events": (EVENTS, health.event_rows),
            "audit": (AUDIT, health.audit_rows),
        }
        self._written: list[Path] = []

    def table(self, name: str, query: Any) -> Table | None:
        """For a query that reads it. None for a name that is not of a catalog's."""
        schema, _, table = name.lower().rpartition(".")
        if schema not in SCHEMAS:
            return None
        if table == "dead_letters":
            wanted = sql.wanted(query, name, "source")
            return Table(letter_schema(), name, lambda columns: self._letters(wanted))
        if table in self._small:
            columns_of, rows = self._small[table]
            return Table(columns_of, name, lambda columns: rows().to_batches())
        # By the table alone: with the schema before it, every name is near every other.
        error = unknown("table", table, list(TABLES))
        raise UnknownObjectError(f"there is no table '{name}'", remedy=f"in {schema}, {error.remedy}")

    def frame(self, name: str, query: Any, spark: SparkSession) -> DataFrame | None:
        """The same as Spark reads it."""
        table = self.table(name, query)
        if table is None:
            return None
        if any(table.schema is schema for schema, _ in self._small.values()):
            return spark.createDataFrame(pa.Table.from_batches(table.batches(()), table.schema))
        return spark.read.parquet(str(self._file(table)))

    def _file(self, table: Table) -> Path:
        """Read once, a few rows at a time, into a file beside the views: Spark reads it as often as it likes."""
        import pyarrow.parquet as pq

        folder = self._home / "dead_letters" / "tables"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{uuid.uuid4().hex}.parquet"
        self._written.append(path)
        with pq.ParquetWriter(path, table.schema) as file:
            for batch in table.batches(()):
                file.write_batch(batch)
        return path

    def _letters(self, wanted: set[str] | None) -> Iterator[pa.RecordBatch]:
        """Of these sources, or of all."""
        # Letters may be in a topic; a SELECT over a view need not wait for Kafka's client.
        from forebay.deadletter.letters import DeadLetters
        from forebay.runtime.letter_owners import owner_of

        for name in self._sources.names():
            if wanted is not None and name not in wanted:
                continue
            try:
                owner = owner_of(name, self._sources, self._catalog)
            except UnsupportedSqlError:
                continue  # a source whose policy writes none
            yield from DeadLetters(owner, self._outcomes(), self._home).batches()

    def close(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)
