"""Small files of a table become fewer and larger ones, so that each row is rewritten a logarithmic number of times.

Files are in tiers by how many rows they have, each tier FAN times the one before. A tier with FAN files is merged into one
file, which is then in a higher tier. Bytes would not do: ten Parquet files of ten rows are hardly larger as one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from forebay.files import persist
from forebay.object_path import TablePath, parquet_file
from forebay.source.file_statistics import FileStatistics
from forebay.source.parquet_file import BYTES, ROWS, writer_of
from forebay.views.delta_entry import added, now_ms, removed, write_beside_others, write_entry
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


class Merge(NamedTuple):
    """What a merge made: the table's version that has it, and the file."""

    version: int
    file: DataFile


def merge(
    folder: TablePath,
    schema: pa.Schema,
    version: int,
    files: Sequence[DataFile],
    merged: MergedFiles,
    *,
    others_append: bool = False,
) -> Merge:
    """Replace these files by one. The commit says that no row has changed, so no subscriber sees one.

    `version` is the table's newest, `schema` the one it has there. FileExistsError if somebody else has made a newer one, and
    if others append, one that did not only append. What was made is on the disk when this returns.
    """
    name = f"part-merged-{uuid.uuid4()}.parquet"
    statistics, written = FileStatistics(), list[pq.FileMetaData]()
    try:
        counts = [0] * len(files)
        with writer_of(folder / name, schema, written) as writer:
            for group in _row_groups(folder, files, schema, counts):
                writer.write_table(group)
                for rows in group.to_batches():
                    statistics.see(rows)
        persist([folder / name])
        merged.write(name, [(file.path, count) for file, count in zip(files, counts, strict=True)])
        size = (folder / name).stat().st_size
        [footer] = written
        actions = [added(name, size, statistics.to_json(schema, footer), changes=False)]
        actions += [removed(file.path, file.size, changes=False) for file in files]
        if others_append:
            made = write_beside_others(folder, version, actions)
        else:
            made = version + 1
            write_entry(folder, made, actions, {})
        return Merge(made, DataFile(name, size, sum(counts), now_ms()))
    except BaseException:
        (folder / name).unlink(missing_ok=True)
        merged.forget(name)
        raise


def _row_groups(
    folder: TablePath, files: Sequence[DataFile], schema: pa.Schema, counts: list[int]
) -> Iterator[pa.Table]:
    """The rows of all files in their order, as much at a time as makes a row group: a group for each of many small files
    would cost more than their rows. `counts` is given how many rows each file has.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for place, file in enumerate(files):
        for batch in _rows(folder, file, schema):
            counts[place] += batch.num_rows
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= ROWS or size >= BYTES:
                yield pa.Table.from_batches(held, schema).combine_chunks()
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema).combine_chunks()


def _rows(folder: TablePath, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with parquet_file(folder / file.path) as opened:
        for rows in opened.iter_batches():
            yield as_in(rows, schema)


def as_in(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the table's columns: a file from before a column or a field of one was added has NULL there."""
    if rows.schema.equals(schema):
        return rows
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
