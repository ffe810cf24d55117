"""Small files of a table become fewer and larger ones, so that each row is rewritten a logarithmic number of times.

Files are in tiers by how many rows they have, each tier FAN times the one before. A tier with FAN files is merged into one
file, which is then in a higher tier. Bytes would not do: ten Parquet files of ten rows are hardly larger as one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from forebay.files import persist
from forebay.object_path import TablePath, parquet_file
from forebay.source.file_statistics import FileStatistics
from forebay.source.parquet_file import writer_of
from forebay.views.delta_entry import added, removed, write_beside_others, write_entry
from forebay.views.merged import MergedFiles

FAN = 8
LARGE = 16 << 20  # bytes; a file of this size stays as it is
MOST_BYTES = 32 << 20  # that one merge rewrites: it takes most of a second, and the next batch waits for it
MOST_FILES = 128  # that one merge opens


@dataclass(frozen=True)
class DataFile:
    """A file of a table's newest version."""

    path: str
    size: int
    rows: int
    modified: int

    @property
    def tier(self) -> int:
        tier, rows = 0, self.rows
        while rows >= FAN:
            tier, rows = tier + 1, rows // FAN
        return tier


def due(files: Iterable[DataFile]) -> list[DataFile]:
    """The files to merge now, oldest first: of the lowest tier that has enough of them."""
    tiers: dict[int, list[DataFile]] = {}
    for file in files:
        if file.size < LARGE:
            tiers.setdefault(file.tier, []).append(file)
    for _, tier in sorted(tiers.items()):
        if len(tier) >= FAN:
            return _at_most(sorted(tier, key=lambda file: (file.modified, file.path))[:MOST_FILES])
    return []


def _at_most(files: Sequence[DataFile]) -> list[DataFile]:
    """As many as one merge may rewrite. Two always fit, since each is less than LARGE."""
    total, taken = 0, list[DataFile]()
    for file in files:
        total += file.size
        if total > MOST_BYTES:
            break
        taken.append(file)
    return taken


def data_files(table: DeltaTable) -> list[DataFile]:
    """The files of the newest version that was opened."""
    found = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    columns = ("path", "size_bytes", "num_records", "modification_time")
    return [
        DataFile(path, size, rows or 0, at)
        for path, size, rows, at in zip(
            *(found.column(name).to_pylist() for name in columns[:3]),
            found.column(columns[3]).cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]


def merge(
    folder: TablePath,
    table: DeltaTable,
    files: Sequence[DataFile],
    merged: MergedFiles,
    *,
    others_append: bool = False,
) -> None:
    """Replace these files by one. The commit says that no row has changed, so no subscriber sees one.

    `table` is as of its newest version, and is not afterwards. FileExistsError if somebody else has made a newer one, and
    if others append, one that did not only append.
    """
    schema = pa.schema(table.schema().to_arrow())
    name = f"part-merged-{uuid.uuid4()}.parquet"
    statistics, written = FileStatistics(), list[pq.FileMetaData]()
    try:
        with writer_of(folder / name, schema, written) as writer:
            counts = []
            for file in files:
                counts.append(0)
                for rows in _rows(folder, file, schema):
                    writer.write_batch(rows)
                    statistics.see(rows)
                    counts[-1] += rows.num_rows
        persist([folder / name])
        merged.write(name, [(file.path, count) for file, count in zip(files, counts, strict=True)])
        size = (folder / name).stat().st_size
        [footer] = written
        actions = [added(name, size, statistics.to_json(schema, footer), changes=False)]
        actions += [removed(file.path, file.size, changes=False) for file in files]
        if others_append:
            write_beside_others(folder, table.version(), actions)
        else:
            write_entry(folder, table.version() + 1, actions, {})
    except BaseException:
        (folder / name).unlink(missing_ok=True)
        merged.forget(name)
        raise


def _rows(folder: TablePath, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with parquet_file(folder / file.path) as opened:
        for rows in opened.iter_batches():
            yield as_in(rows, schema)


def as_in(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the table's columns: a file from before a column or a field of one was added has NULL there."""
    known = set(rows.schema.names)
    arrays = [
        _as_type(rows.column(field.name), field.type)
        if field.name in known
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
