"""A view's Delta table: each micro-batch is in it once, however often Spark repeats the batch.

Executors write Parquet files; the driver makes them part of the table in one Delta commit that carries
(query, batch). A batch whose number is already there is left out. No Spark jar takes part.

All that a batch wrote is forced to the disk before Spark hears that it is done: neither deltalake nor the Parquet writer
does that, and after a power failure the checkpoint would know of rows that no file has.

Between batches the table is kept small (`tidy.py`). Where a batch only adds files, that happens in the background: the batch
does not wait for it. The next one does, if it comes sooner: a table has one writer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.table import TableMerger

from forebay import threads
from forebay.errors import CheckpointError
from forebay.files import make_folder, persist
from forebay.object_path import ObjectPath, TablePath, is_url, store_settings, table_path, take_settings
from forebay.source.parquet_file import ParquetFile
from forebay.source.shared_folder import check_seen
from forebay.views.delta_entry import added, entry_of, write_entry
from forebay.views.options import RETENTION_S
from forebay.views.tidy import PROPERTIES, TableSize, Tidier, size_of
from forebay.views.versions import read_entry

if TYPE_CHECKING:  # who only reads a table needs no Spark
    from pyspark.sql import DataFrame

WRITTEN = "path string, size long, stats string"
METADATA = "forebay"  # the key in a commit's information that has what the writer said of the batch


class ViewTable:
    """One view's table on disk."""

    def __init__(self, path: TablePath, retention_s: float = RETENTION_S) -> None:
        self.path = path
        self._tidier = Tidier(path, retention_s)
        self._table: DeltaTable | None = None
        self._durable: int | None = None  # all versions up to this one are on the disk
        # The newest version, and the newest batch of its query, if this object has written them: nobody else writes the
        # table, and looking for newer versions takes longer than all the rest of a small batch.
        self._written: int | None = None
        self._newest: tuple[str, int] | None = None
        self._tidying: threading.Thread | None = None
        self._not_tidied: Exception | None = None  # what the last tidying ended with

    def exists(self) -> bool:
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def create(self, schema: pa.Schema, more: Mapping[str, str] | None = None) -> None:
        """Make an empty table, with these properties besides. The change feed is on, so that a subscriber sees updates as such."""
        make_folder(self.path)
        DeltaTable.create(
            str(self.path),
            schema=nullable(schema),
            # Bounds of every column are kept, however many there are: `least` asks for one of the last.
            configuration={
                "delta.enableChangeDataFeed": "true",
                "delta.dataSkippingNumIndexedCols": "-1",
                **PROPERTIES,
                **(more or {}),
            },
            raise_if_key_not_exists=False,
        )
        self.persist()

    def widen(self, schema: pa.Schema) -> None:
        """Add the columns, and the fields in columns, that the table does not have yet.

        In the rows that are there they are NULL.
        """
        self._begin()
        table = self.open()
        known = {field.name: field.type for field in table.schema().fields}
        wanted = Schema.from_arrow(nullable(schema)).fields
        new = [field for field in wanted if known.get(field.name) != field.type]
        if new:
            table.alter.add_columns(new)
            self.persist()

    def open(self) -> DeltaTable:
        """The table as of its newest version."""
        if self._table is None:
            self._table = DeltaTable(str(self.path))
        else:
            self._table.update_incremental()
        return self._table

    def holds(self, query: str, batch: int) -> bool:
        """Whether this batch is in the table already. For the one who writes it."""
        if self._newest is not None and self._newest[0] == query:
            return self._newest[1] >= batch
        last = self.open().transaction_version(query)
        return last is not None and last >= batch

    def newest_metadata(self) -> dict[str, str]:
        """What the writer said of the newest batch that added rows; nothing where no entry of the log has it any more.

        The newest versions may be merges of files. Reading an entry takes 0.1 ms, deltalake's `history(1)` 10 to 30.
        """
        for version in range(self.open().version(), -1, -1):
            entry = entry_of(self.path, version)
            if not entry.exists():
                break
            for action in read_entry(entry):
                if found := action.get("commitInfo", {}).get(METADATA):
                    return dict(found)
        return {}

    def persist(self) -> None:
        """Force to the disk what is not known to be there. CheckpointError if a power failure took some of it.

        Each version is forced before the next begins, so of what another process wrote only the newest can be
        missing: it was killed before it came to that.
        """
        self.settle()
        self._persist()

    def _persist(self) -> None:
        newest = self.open().version()
        if isinstance(self.path, ObjectPath):
            self._durable = newest
            return
        log = self.path / "_delta_log"
        for version in range(newest if self._durable is None else self._durable + 1, newest + 1):
            entry = entry_of(self.path, version)
            persist(self._written_by(entry))
            # Now and then deltalake sums the log up; a reader looks at that first.
            summed = [*log.glob(f"{version:020d}.checkpoint*.parquet")]
            persist([*summed, *([log / "_last_checkpoint"] if summed else ()), entry, log])
        self._durable = newest

    def _written_by(self, entry: TablePath) -> Iterator[TablePath]:
        """The data files of a version, and the folder of those that tell what it changed."""
        for action in read_entry(entry):
            made = action.get("add") or action.get("cdc")
            if made is None:
                continue
            file = self.path / unquote(made["path"])
            if not file.exists() or file.stat().st_size != made["size"]:
                raise CheckpointError(
                    f"{file} is not whole, though the table at {self.path} has it: a power failure or somebody "
                    "else has taken it away",
                    remedy="drop the view and create it again",
                )
            yield file
            if file.parent != self.path:
                yield file.parent

    def append(
        self, frame: DataFrame, query: str, batch: int, metadata: Mapping[str, str] | None = None
    ) -> int:
        """Add the rows of a batch; returns how many."""
        return self.add(self.written(frame, batch), query, batch, metadata)

    def written(self, frame: DataFrame, batch: int) -> list[tuple[str, int, str]]:
        """The rows of a batch as files that executors have written. The table does not have them before `add`."""
        rows = frame.mapInArrow(_parquet_writer(str(self.path), batch), WRITTEN).collect()
        return [(row["path"], row["size"], row["stats"]) for row in rows]

    def add(
        self,
        written: Sequence[tuple[str, int, str]],
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Make files part of the table that executors have written and forced to the disk; returns how many rows.

        The metadata is in the commit, for whoever reads the table's log. If the table is being tidied, this waits for it.
        """
        if not written:
            return 0
        self._begin()
        actions = [added(path, size, stats) for path, size, stats in written]
        about = {} if metadata is None else {METADATA: dict(metadata)}
        version = (self.open().version() if self._written is None else self._written) + 1
        try:
            write_entry(self.path, version, actions, about, [(query, batch)])
        except FileExistsError:
            if self._written is None:
                raise
            self._written = self._newest = None  # somebody else has written to it after all
            if self.holds(query, batch):
                return 0
            version = self.open().version() + 1
            write_entry(self.path, version, actions, about, [(query, batch)])
        self._durable = self._written = version
        self._newest = query, batch
        self._tidy_aside(len(written), sum_up=version % checkpoint_every() == 0)
        return sum(int(json.loads(stats)["numRecords"]) for _, _, stats in written)

    def merge(
        self,
        rows: pa.Table,
        keys: tuple[str, ...],
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Replace the rows of these keys, add those that are new; returns how many."""
        if not rows.num_rows:
            return 0
        merge = self._merger(rows, keys, query, batch, metadata)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self._done()
        return int(rows.num_rows)

    def replace(
        self,
        rows: pa.Table,
        keys: tuple[str, ...],
        weight: str,
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """As `merge`, but that rows whose weight is 0 are removed; the weight itself is not kept."""
        if not rows.num_rows:
            return 0
        merge = self._merger(rows, keys, query, batch, metadata)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names if name != weight}
        if keys:
            gone = f"s.{_quoted(weight)} = 0"
            merge.when_matched_delete(gone).when_not_matched_insert(values, f"NOT ({gone})")
        else:
            merge.when_not_matched_insert(values)
        merge.when_matched_update(values).execute()
        self._done()
        return int(rows.num_rows)

    def note(self, query: str, batch: int, metadata: Mapping[str, str]) -> None:
        """A commit without rows: the table has all that it is to have of a batch."""
        write_entry(self.path, self.open().version() + 1, [], {METADATA: dict(metadata)}, [(query, batch)])
        self._done()

    def add_up(
        self,
        rows: pa.Table,
        weight: str,
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Add the weights of rows to those of the equal rows that are there; of weight 0 there are none."""
        if not rows.num_rows:
            return 0
        keys = tuple(name for name in rows.column_names if name != weight)
        merge = self._merger(rows, keys, query, batch, metadata)
        total = f"t.{_quoted(weight)} + s.{_quoted(weight)}"
        merge.when_matched_delete(f"{total} = 0").when_matched_update({_quoted(weight): total})
        merge.when_not_matched_insert_all().execute()
        self._done()
        return int(rows.num_rows)

    def _merger(
        self,
        rows: pa.Table,
        keys: tuple[str, ...],
        query: str,
        batch: int,
        metadata: Mapping[str, str] | None,
    ) -> TableMerger:
        self._begin()
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        # A NULL in a key is a group like any other, so plain equality will not do.
        same = " AND ".join(f"(t.{_quoted(k)} IS NOT DISTINCT FROM s.{_quoted(k)})" for k in keys) or "true"
        return self.open().merge(
            rows,
            same,
            source_alias="s",
            target_alias="t",
            commit_properties=_properties(query, batch, metadata),
        )

    def least(self, column: str) -> int | None:
        """The smallest value of a column of integers, by what is known of the files."""
        known = pa.table(self.open().get_add_actions(flatten=True))
        name = f"min.{column}"
        found = known.column(name).to_pylist() if name in known.column_names else []
        return min((value for value in found if value is not None), default=None)

    # -- between batches -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until nothing is tidied in the background any more: before somebody else may write the table."""
        thread = self._tidying
        if thread is not None:
            thread.join()
            self._tidying = None

    def _begin(self) -> None:
        """Before something is written: nobody else writes. Raises what the last tidying ended with."""
        self.settle()
        error, self._not_tidied = self._not_tidied, None
        if error is not None:
            raise error

    def _done(self) -> None:
        """deltalake has committed a batch: onto the disk with it, then tidy up if it is time to."""
        self._written = self._newest = None
        self._persist()
        if self._tidier.wrote(1):
            self._tidy()

    def _tidy_aside(self, files: int, *, sum_up: bool) -> None:
        """A batch has added files: tidy up if it is time to. The batch is in the table, so nobody waits for this."""
        tidy = self._tidier.wrote(files)
        if not (tidy or sum_up):
            return

        def body() -> None:
            if sum_up:
                self.sum_up()
            if tidy:
                self._tidy()

        def failed(error: Exception) -> None:
            self._not_tidied = error

        name = f"forebay-tidy-{self.path.parent.name}"
        self._tidying = threads.start(name, body, failed, logged=False)

    def _tidy(self) -> None:
        self._written = (
            None  # until it is known again: an error may leave a version that nobody here has seen
        )
        version = self._tidier.step(self.open(), self._persist)
        if version is None:
            self._persist()
            version = self.open().version()
        self._durable = self._written = version

    def sum_up(self) -> None:
        """Write a Delta checkpoint: readers open the table by it, and by the entries since. deltalake does so by itself
        when it has written every so many entries.
        """
        table = self.open()
        table.create_checkpoint()
        log = self.path / "_delta_log"
        persist([*log.glob(f"{table.version():020d}.checkpoint*.parquet"), log / "_last_checkpoint"])
        if table.metadata().configuration.get("delta.enableExpiredLogCleanup") != "false":
            table.cleanup_metadata()

    def size(self) -> TableSize:
        return size_of(self.open(), self.path)

    def files(self) -> list[str]:
        return list(self.open().file_uris())


def checkpoint_every() -> int:
    return int(PROPERTIES.get("delta.checkpointInterval", "100"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _properties(query: str, batch: int, metadata: Mapping[str, str] | None = None) -> CommitProperties:
    said = None if metadata is None else {METADATA: dict(metadata)}
    return CommitProperties(custom_metadata=said, app_transactions=[Transaction(query, batch)])


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _parquet_writer(
    directory: str, batch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: writes its rows to one file and returns one row about it."""

    stores = store_settings() if is_url(directory) else {}

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        take_settings(stores)
        check_seen(directory)
        file = ParquetFile(table_path(directory), f"part-{batch:05d}")
        for rows in batches:
            file.add(rows)
        written = file.close()
        if written is not None:
            yield pa.RecordBatch.from_pylist([written._asdict()])

    return write
