"""The log of a view's groups: a Delta table of runs. A batch appends one; of a group's rows the newest is what it is.

Each commit says in its metadata how far the view has come, so that a process that opens the log needs nothing else.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from forebay.errors import ChangesGoneError
from forebay.files import make_folder, persist
from forebay.object_path import TablePath, parquet_file, parquet_writer
from forebay.views.delta_entry import added, removed, write_entry
from forebay.views.groups.columns import Array
from forebay.views.groups.layout import ID, SEQUENCE, GroupLayout, numbers
from forebay.views.table import ViewTable

APP = "forebay.groups"  # in commits of the log and of the public table: how far they have come
_NAME = re.compile(r"run-(\d+)-(\d+)(-[0-9a-f]{32})?\.parquet")
# A commit lists the log's entries: ten thousand of them would take longer than all the rest.
_ENTRIES_KEPT = "interval 60 seconds"
_CHECKPOINT_EVERY = 25  # versions: whoever opens the log reads all entries since
_CHUNK = 1 << 17  # rows that are read at a time
# Of changes that are older than `keep_s`: a batch leaves a file, and ten of them a second would be six million a week.
MOST_CHANGES = 10_000
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Run:
    """A file of rows, at most one a group, of the versions of the log from `first` to `last`."""

    path: str
    first: int
    last: int
    rows: int
    size: int


@dataclass(frozen=True)
class LogState:
    """How far a view has come."""

    sequence: int = -1  # of the newest batch that has changed a group
    groups: int = 0  # all that there have ever been; the next one gets this number
    watermark: int | None = None
    query: str = ""
    batch: int = -1
    horizon: int = -1  # changes up to this version of the log may be gone
    metadata: tuple[tuple[str, str], ...] = ()  # what the caller gave with the newest batch
    behind_since_ms: int | None = (
        None  # when the first change came that the public table did not have at this batch
    )

    def named(self) -> dict[str, str]:
        """What a commit has of it: the caller's metadata as they are, and all of it in one text."""
        return {**dict(self.metadata), APP: json.dumps(asdict(self))}

    @staticmethod
    def of(commit: Mapping[str, Any]) -> LogState:
        """What `named` has put into a commit."""
        if APP not in commit:
            return LogState()
        state = LogState(**json.loads(commit[APP]))
        return replace(state, metadata=tuple((key, value) for key, value in state.metadata))


class GroupLog:
    """Reads and writes runs. One process writes; any number read."""

    def __init__(self, path: TablePath, layout: GroupLayout, keep_s: float, retention_s: float = 0.0) -> None:
        self.path = path
        self._layout = layout
        self._keep_s = keep_s
        self._retention_s = retention_s
        self._table = ViewTable(path)
        # The newest version and its runs, as the process that writes knows them without asking.
        self._written = -1
        self.current: list[Run] = []

    def exists(self) -> bool:
        return self._table.exists()

    def create(self) -> None:
        make_folder(self.path)
        DeltaTable.create(
            str(self.path),
            schema=self._layout.log_schema,
            # A checkpoint names every file that was removed less than so long ago: of small batches these are many.
            configuration={
                "delta.checkpointInterval": str(_CHECKPOINT_EVERY),
                "delta.logRetentionDuration": _ENTRIES_KEPT,
                "delta.deletedFileRetentionDuration": _ENTRIES_KEPT,
            },
        )
        self._table.persist()

    def recover(self) -> None:
        """Undo and redo what a killed process has left: a file without a commit, a commit that is not on the disk yet."""
        self._table.persist()
        self._written = self.version()
        self.current = self.runs()
        (self.path / _batch_name(self._written + 1)).unlink(missing_ok=True)

    def version(self) -> int:
        return int(self._table.open().version())

    @property
    def next_version(self) -> int:
        """What the next commit will be, for the process that writes."""
        return self._written + 1

    def newest_batch(self, query: str) -> int:
        """Of a query, -1 if there is none."""
        found = self._table.open().transaction_version(query)
        return -1 if found is None else int(found)

    def state(self) -> LogState:
        """How far it has come, by its newest commit."""
        newest = self._table.open().history(1)[0]
        if APP in newest or newest["version"] == 0:
            return LogState.of(newest)
        # Somebody else has written to it: what they say nothing of is as it was.
        return LogState.of(next((each for each in self._table.open().history() if APP in each), {}))

    def runs(self) -> list[Run]:
        """The runs that make up the table, oldest first."""
        known = pa.table(self._table.open().get_add_actions(flatten=True))
        columns = (known.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
        found = []
        for path, rows, size in zip(*columns, strict=True):
            name = _NAME.fullmatch(path)
            assert name is not None, path
            found.append(Run(path, int(name[1]), int(name[2]), rows, size))
        return sorted(found, key=lambda run: run.first)

    def append(self, rows: pa.Table, state: LogState) -> int:
        """Add a batch, durable when this returns; one without rows leaves only its state. Returns its version."""
        version = self.next_version
        batches = iter(rows.to_batches())
        new = (
            [self._write(_batch_name(version), rows.schema, batches, version, version)]
            if rows.num_rows
            else []
        )
        self._commit(new, [], state)
        return version

    def replace(self, old: Sequence[Run], new: Run, state: LogState) -> None:
        """One run instead of several that say the same."""
        self._commit([new], old, state, changes=False)

    def write(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], first: int, last: int) -> Run:
        """A file that is on the disk, but not part of the table yet."""
        name = f"run-{first:012d}-{last:012d}-{uuid.uuid4().hex}.parquet"
        return self._write(name, schema, batches, first, last)

    def _write(
        self, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], first: int, last: int
    ) -> Run:
        path = self.path / name
        counted = (ID, SEQUENCE)
        rows = 0
        with parquet_writer(
            path, schema, compression="zstd", write_statistics=False, store_schema=False,
            use_dictionary=[column for column in schema.names if column not in counted],
            column_encoding=dict.fromkeys(counted, "DELTA_BINARY_PACKED"),
        ) as writer:  # fmt: skip
            for table in _gathered(batches, schema):
                writer.write_table(table)
                rows += table.num_rows
        persist([path])
        return Run(name, first, last, rows, path.stat().st_size)

    def _commit(
        self, new: Sequence[Run], old: Sequence[Run], state: LogState, *, changes: bool = True
    ) -> None:
        actions = [
            added(run.path, run.size, json.dumps({"numRecords": run.rows}), changes=changes) for run in new
        ]
        actions += [removed(run.path, run.size, changes=changes) for run in old]
        done = [(state.query, state.batch)] if changes else []
        write_entry(self.path, self._written + 1, actions, state.named(), done)
        self._written += 1
        kept = [run for run in self.current if run not in old]
        self.current = sorted([*kept, *new], key=lambda run: run.first)
        if self._written % _CHECKPOINT_EVERY == 0:
            self._table.sum_up()

    def batches(self, run: Run, keep: Array | None, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """A run's rows, or those that are to be kept of them, with the columns of the layout."""
        schema = pa.schema([self._layout.log_schema.field(name) for name in names])
        start = 0
        with parquet_file(self.path / run.path) as file:
            for batch in file.iter_batches(_CHUNK, columns=list(names)):
                chosen = (
                    batch if keep is None else batch.filter(pa.array(keep[start : start + batch.num_rows]))
                )
                start += batch.num_rows
                if chosen.num_rows:
                    yield chosen.select(list(names)).cast(schema)

    def read(self, run: Run, keep: Array | None, names: Sequence[str]) -> pa.Table:
        schema = pa.schema([self._layout.log_schema.field(name) for name in names])
        return pa.Table.from_batches(self.batches(run, keep, names), schema)

    def newest(self, runs: Sequence[Run]) -> list[Array]:
        """Which rows of each run are the newest of their groups. `runs` go from old to new."""
        found = [numbers(self.read(run, None, [ID]).column(ID)) for run in runs]
        flags = newest_of(np.concatenate(found)) if found else np.zeros(0, np.bool_)
        return np.split(flags, np.cumsum([len(ids) for ids in found])[:-1]) if found else []

    def changes(self, version: int) -> pa.Table:
        """The rows that a version added: none if it only folded. ChangesGoneError if they are not kept any more."""
        name = _batch_name(version)
        try:
            # The file is there a moment before its commit is.
            if version <= self.version():
                return self.read(Run(name, version, version, 0, 0), None, self._layout.log_schema.names)
        except FileNotFoundError:
            if version <= self.state().horizon:
                raise ChangesGoneError(
                    f"the changes of version {version} at {self.path.parent} are not kept any more"
                ) from None
        return self._layout.log_schema.empty_table()

    def vacuum(self, horizon: int) -> int:
        """Remove files that have not been part of the table for a while, of changes only those up to the horizon.

        Returns the horizon as it should be: once a commit says so, these may go, too.
        """
        present = {run.path for run in self.runs()}
        now = time.time()
        changes: list[tuple[int, float, int, TablePath]] = []
        for file in self.path.glob("run-*.parquet"):
            name = _NAME.fullmatch(file.name)
            if name is None or file.name in present:
                continue
            found = file.stat()
            if found.st_mtime >= now - self._keep_s:
                continue
            if name[3]:
                file.unlink(missing_ok=True)
            else:
                changes.append((int(name[1]), found.st_mtime, found.st_size, file))
        gone = horizon
        size = 0
        for kept, (version, written, bytes_, file) in enumerate(sorted(changes, reverse=True)):
            size += bytes_
            if kept >= MOST_CHANGES or size > MOST_BYTES or written < now - self._retention_s:
                gone = max(gone, version)
            if version <= horizon:
                file.unlink(missing_ok=True)
        return gone


def _batch_name(version: int) -> str:
    """The file that a version of the log has added; so changes are found when the entry is gone."""
    return f"run-{version:012d}-{version:012d}.parquet"


def _gathered(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """What is left of pieces, in pieces that are worth a row group."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _CHUNK:
            yield pa.Table.from_batches(waiting, schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def newest_of(ids: Array) -> Array:
    """Which of the rows is the last one of its id."""
    count = len(ids)
    if not count:
        return np.zeros(0, np.bool_)
    least = int(ids.min())
    span = int(ids.max()) - least + 1
    if span <= 8 * count + 1024:  # numbers lie close, unless most groups are closed and elsewhere
        last = np.zeros(span, np.int64)
        last[ids - least] = np.arange(count)  # of several the last one stays
        return np.asarray(last[ids - least] == np.arange(count))
    flags = np.zeros(count, np.bool_)
    _, from_end = np.unique(ids[::-1], return_index=True)
    flags[count - 1 - from_end] = True
    return flags
