"""Tables as they are now: the rows of a view's Delta table, or of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from forebay.answers.question import NeedsSpark
from forebay.object_path import parquet_file, table_path
from forebay.sql.text import WEIGHT

if TYPE_CHECKING:
    from deltalake import DeltaTable

LARGEST = 512 * 2**20  # bytes of files, packed: what is sorted or grouped here is in memory as a whole
MOST_REPEATED = 2**20  # rows that one batch of a change log's view may become


@dataclass(frozen=True)
class Table:
    """`batches(columns)` reads these columns, others too if it likes."""

    schema: pa.Schema
    about: str
    batches: Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


def view_table(name: str, delta: DeltaTable, *, weighed: bool) -> Table:
    """A view. `weighed`: its table has each row once, with how often it is there."""
    # Not pa.table(…), and below not pyarrow.dataset: both import pandas, which takes as long as all the rest.
    files = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    sizes = files.column("size_bytes")
    size = pc.sum(sizes).as_py() or 0
    about = f"{name}, version {delta.version()}: {len(sizes)} files, {size:,} bytes"
    if size > LARGEST:
        raise NeedsSpark(f"{about}, more than {LARGEST:,}")
    unknown = {*(delta.protocol().reader_features or ())} - {"timestampNtz"}
    if unknown or delta.metadata().partition_columns:
        raise NeedsSpark(f"{about}, written by somebody else")
    paths, schema = delta.file_uris(), pa.schema(delta.schema().to_arrow())
    if not weighed:
        return Table(schema, about, lambda columns: _read(paths, columns, schema))
    shown = pa.schema([field for field in schema if field.name != WEIGHT])
    return Table(shown, about, lambda columns: _repeated(_read(paths, [*columns, WEIGHT], schema), columns))


def group_rows(name: str, rows: pa.Table) -> Table:
    """A view that groups, as its groups are now."""
    about = f"{name}, {rows.num_rows} groups"
    return Table(rows.schema, about, lambda columns: rows.select(list(columns)).to_batches())


def _read(paths: Sequence[str], columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows. None is skipped by the statistics of a file: they say nothing of NaN, and tell -0.0 from 0.0."""
    for path in paths:
        with parquet_file(table_path(path)) as file:
            there = {*file.schema_arrow.names} & {*columns}
            for batch in file.iter_batches(columns=[name for name in columns if name in there]):
                # A file from before a column was added does not have it.
                arrays = [
                    batch.column(name) if name in there else pa.nulls(batch.num_rows, schema.field(name).type)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _repeated(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Each row as often as it is there."""
    import numpy as np

    for batch in batches:
        there = batch.filter(pc.greater(batch.column(WEIGHT), 0))
        weights = there.column(WEIGHT).to_numpy()
        if weights.sum(dtype=float) > MOST_REPEATED:
            raise NeedsSpark("a row that is there very often")
        yield there.select(columns).take(pa.array(np.repeat(np.arange(len(weights)), weights)))
