"""One Parquet file of a table: rows in, what the table's log says of the file out.

It is on the disk, content and name, when it is closed: a table must not know of a file that a power failure can take away.
"""

from __future__ import annotations

import io
import uuid
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from forebay.files import persist
from forebay.object_path import TablePath, parquet_writer
from forebay.source.file_statistics import FileStatistics

ROWS, BYTES = 131_072, 64 * 1024 * 1024  # of a row group, at most: what is held before it is written


class WrittenFile(NamedTuple):
    """A file that is whole: its name within the table's folder, its bytes, and its statistics as Delta keeps them."""

    path: str
    size: int
    stats: str


class ParquetFile:
    """A file in the making, in a table's folder. Without rows there is none."""

    def __init__(self, folder: TablePath, prefix: str) -> None:
        self._folder = folder
        self.name = f"{prefix}-{uuid.uuid4()}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._footer: list[pq.FileMetaData] = []
        self._stats = FileStatistics()
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of one schema. They are held until they make a row group worth writing."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self._write()

    def close(self) -> WrittenFile | None:
        """The file, on the disk; None where there were no rows."""
        written = self.finish()
        self.persist()
        return written

    def persist(self) -> None:
        """Force a finished file to the disk, if there is one."""
        if self._writer is not None:
            persist([self._folder / self.name])

    def finish(self) -> WrittenFile | None:
        """The file, which `persist` is yet to force to the disk; None where there were no rows."""
        if self._held:
            self._write()
        if self._writer is None:
            return None
        self._writer.close()
        path = self._folder / self.name
        [footer] = self._footer
        return WrittenFile(self.name, path.stat().st_size, self._stats.to_json(self._schema, footer))

    def discard(self) -> None:
        """Nobody will know of it: it is removed."""
        self._held = []
        if self._writer is not None:
            with suppress(OSError):  # of a full disk, maybe
                self._writer.close()
            (self._folder / self.name).unlink(missing_ok=True)

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._held).combine_chunks()
        self._held, self._rows, self._bytes = [], 0, 0
        if self._writer is None:
            self._schema = rows.schema
            self._writer = writer_of(self._folder / self.name, rows.schema, self._footer)
        self._writer.write_table(rows)
        for batch in rows.to_batches():
            self._stats.see(batch)


def writer_of(path: TablePath, schema: pa.Schema, footer: list[pq.FileMetaData]) -> pq.ParquetWriter:
    """A writer of a table's data files. When it is closed, `footer` has what the file says of itself."""
    return parquet_writer(path, schema, metadata_collector=footer, **_encoding(schema))


@lru_cache(maxsize=256)
def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """How columns are encoded. By default pyarrow tries a dictionary for every column and gives it up where values differ,
    which makes numbers and times cost three times as much and take twice the space. Every reader of Delta knows these encodings.
    """
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty)
    leaves = pq.ParquetFile(empty).schema
    kinds = {leaves.column(place).path: leaves.column(place).physical_type for place in range(len(leaves))}
    numbers = [path for path, kind in kinds.items() if kind in ("INT32", "INT64")]
    return {
        "compression": "zstd",
        "use_dictionary": [path for path, kind in kinds.items() if kind == "BYTE_ARRAY"],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None,
    }
