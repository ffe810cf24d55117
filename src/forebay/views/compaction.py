"""Small files of a table become fewer and larger ones, so that each row is rewritten a logarithmic number of times.

Files are in tiers by how many rows they have, each tier FAN times the one before. A tier with FAN files is merged into one
file, which is then in a higher tier. Bytes would not do: ten Parquet files of ten rows are hardly larger as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from forebay.object_path import TablePath, parquet_file
from forebay.source.parquet_file import ParquetFile
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
    """What a merge made: the table's version that has it, and the file. None where there were no rows."""

    version: int
    file: DataFile | None


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
    made, counts = ParquetFile(folder, "part-merged"), list[int]()
    try:
        for file in files:
            counts.append(0)
            for rows in _rows(folder, file, schema):
                made.add(rows)
                counts[-1] += rows.num_rows
        written = made.close()
        actions = [removed(file.path, file.size, changes=False) for file in files]
        if written is not None:
            merged.write(
                written.path, [(file.path, count) for file, count in zip(files, counts, strict=True)]
            )
            actions.insert(0, added(*written, changes=False))
        if others_append:
            version = write_beside_others(folder, version, actions)
        else:
            version += 1
            write_entry(folder, version, actions, {})
    except BaseException:
        made.discard()
        merged.forget(made.name)
        raise
    return Merge(version, written and DataFile(written.path, written.size, sum(counts), now_ms()))


def _rows(folder: TablePath, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with parquet_file(folder / file.path) as opened:
        for rows in opened.iter_batches():
            yield as_in(rows, schema)


def as_in(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the table's columns: a file from before a column or a field of one was added has NULL there."""
    if rows.schema.equals(schema, check_metadata=True):
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
