"""The public table of many groups: rows that change are marked as deleted where they stand, and added at the end.

To merge would be to write the whole table. Marks are Delta's deletion vectors. Which group a row is of is in a file of
ours beside the table's, since the view's columns need not say it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.errors import CheckpointError
from forebay.files import make_folder, persist
from forebay.object_path import TablePath, parquet_file, parquet_writer
from forebay.views.delta_entry import added, now_ms, removed, write_entry
from forebay.views.groups.columns import Array
from forebay.views.groups.fold import plan
from forebay.views.groups.layout import numbers
from forebay.views.groups.log import APP, LogState, Run
from forebay.views.groups.vectors import read_vector, vector_path, write_vector
from forebay.views.table import ViewTable

_FEATURE = "deletionVectors"
_VECTORS = "forebay.vectors"
_NAME = re.compile(r"part-(\d+)-(\d+)-[0-9a-f]{32}\.parquet")
_CHECKPOINT_EVERY = 100  # commits, as deltalake does by itself
_CHUNK = 1 << 17


@dataclass
class PublicFile:
    """A file of the public table: whose rows it has, and which of them count no more."""

    run: Run
    ids: Array  # sorted
    rows: Array  # where in the file the row of each id is
    deleted: Array  # by row
    vector: dict[str, Any] | None = None

    @staticmethod
    def of(run: Run, ids: Array) -> PublicFile:
        order = np.argsort(ids, kind="stable")
        return PublicFile(run, ids[order], order.astype(np.int32), np.zeros(len(ids), np.bool_))

    def delete(self, ids: Array) -> bool:
        """Mark the rows of these groups; whether there are any."""
        places = np.searchsorted(self.ids, ids)
        places[places == len(self.ids)] = 0
        rows = self.rows[places[self.ids[places] == ids]] if len(self.ids) else self.rows
        rows = rows[~self.deleted[rows]]
        self.deleted[rows] = True
        return bool(len(rows))


class LargePublic:
    """One public table. One process writes it."""

    def __init__(self, public: ViewTable, owners: TablePath, keep_s: float) -> None:
        self._public = public
        self._owners = owners
        self._keep_s = keep_s
        self._files: list[PublicFile] | None = None
        self._active: bool | None = None

    def active(self) -> bool:
        """Whether the table is one of these already."""
        if self._active is None:
            self._active = _FEATURE in (self._public.open().protocol().reader_features or ())
        return self._active

    def convert(self, parts: Iterable[tuple[pa.Table, Array]], state: LogState) -> None:
        """Make the table one of these, with these rows and no others.

        The change feed ends here: it would need every row as it was before. Subscribers follow the log.
        """
        make_folder(self._owners)
        self._active = None
        table = self._public.open()
        about = table.metadata()
        settings = {
            "delta.logRetentionDuration": "interval 1 days",  # an entry every ten seconds, which each commit lists
            **about.configuration,
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "false",
        }
        old = [
            {"remove": {"path": path, "deletionTimestamp": now_ms(), "dataChange": True}}
            for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        ]
        new = self._write(parts, 0, state.sequence)
        # What a writer has to keep to goes into the list of features, from this version of the protocol on.
        written = ["appendOnly", "changeDataFeed", _FEATURE, "invariants"]
        ntz = [name for name in table.protocol().reader_features or () if name != _FEATURE]
        self._commit([
            {"protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*ntz, _FEATURE],
                "writerFeatures": [*ntz, *written],
            }},
            {"metaData": {
                "id": about.id, "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(), "partitionColumns": [], "configuration": settings,
                "createdTime": about.created_time,
            }},
            *old, _add(new),
        ], [new], state)  # fmt: skip

    def publish(self, rows: pa.Table, ids: Array, changed: Array, state: LogState) -> None:
        """Put these rows in the place of those that the changed groups have; a group without one is not shown any more."""
        files = self._loaded()
        new = [self._write([(rows, ids)], state.sequence, state.sequence)] if len(ids) else []
        self._files = None  # rows are marked before it is known that the commit succeeds
        actions = []
        for file in files:
            if file.delete(changed):
                removed = _remove(file, changes=True)
                file.vector = write_vector(self._public.path, file.deleted)
                actions += [removed, _add(file)]
        self._commit([*actions, *map(_add, new)], [*files, *new], state)

    def tidy(self, *, vacuum: bool) -> bool:
        """Write files of about one size as one, without the rows that count no more."""
        files = self._loaded()
        old = files[len(files) - len(plan([file.run for file in files])) :]
        if old:
            new = self._write(self._rest(old), old[0].run.first, old[-1].run.last)
            removed = [_remove(file, changes=False) for file in old]
            left = files[: len(files) - len(old)]
            state = LogState.of(self._public.open().history(1)[0])
            self._commit([*removed, _add(new, changes=False)], [*left, new], state)
        if vacuum:
            self._vacuum()
        return bool(old)

    def _rest(self, files: Sequence[PublicFile]) -> Iterator[tuple[pa.Table, Array]]:
        for file in files:
            ids = np.empty_like(file.ids)
            ids[file.rows] = file.ids
            start = 0
            with parquet_file(self._public.path / file.run.path) as source:
                for batch in source.iter_batches(_CHUNK):
                    keep = ~file.deleted[start : start + batch.num_rows]
                    yield (
                        pa.Table.from_batches([batch.filter(pa.array(keep))]),
                        ids[start : start + batch.num_rows][keep],
                    )
                    start += batch.num_rows

    def _loaded(self) -> list[PublicFile]:
        if self._files is None:
            known = pa.table(self._public.open().get_add_actions(flatten=True))
            sizes = dict(
                zip(known.column("path").to_pylist(), known.column("size_bytes").to_pylist(), strict=True)
            )
            paths = sorted(sizes)  # the number of the first batch is what names begin with
            owners = [numbers(_read(self._owners / path).column("id")) for path in paths]
            vectors = json.loads(self._public.open().history(1)[0][_VECTORS])
            self._files = []
            for path, ids in zip(paths, owners, strict=True):
                name = _NAME.fullmatch(path)
                assert name is not None, path
                file = PublicFile.of(Run(path, int(name[1]), int(name[2]), len(ids), sizes[path]), ids)
                if vector := vectors.get(path):
                    file.deleted, file.vector = read_vector(self._public.path, vector, len(ids)), vector
                self._files.append(file)
        return self._files

    def _write(self, parts: Iterable[tuple[pa.Table, Array]], first: int, last: int) -> PublicFile:
        """A file and beside it whose rows it has; both are on the disk, and not part of the table yet."""
        name = f"part-{first:012d}-{last:012d}-{uuid.uuid4().hex}.parquet"
        path = self._public.path / name
        schema = pa.schema(self._public.open().schema().to_arrow())
        owners = []
        with parquet_writer(path, schema, compression="zstd") as writer:
            for rows, ids in parts:
                writer.write_table(rows.cast(schema))
                owners.append(ids)
        every = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        encoding = {"id": "DELTA_BINARY_PACKED"}
        ids_table = pa.table({"id": every})
        with parquet_writer(
            self._owners / name, ids_table.schema, compression="zstd", use_dictionary=False,
            column_encoding=encoding, write_statistics=False,
        ) as writer:  # fmt: skip
            writer.write_table(ids_table)
        persist([path, self._owners / name])
        return PublicFile.of(Run(name, first, last, len(every), path.stat().st_size), every)

    def _commit(self, actions: Sequence[dict[str, Any]], files: list[PublicFile], state: LogState) -> None:
        """deltalake's own transaction has no place for a deletion vector."""
        self._files = None
        vectors = {file.run.path: file.vector for file in files if file.vector}
        version = self._public.open().version() + 1
        # To remove a file, a later entry has to name the vector that it has; deltalake does not tell.
        about = {**state.named(), _VECTORS: json.dumps(vectors)}
        try:
            write_entry(self._public.path, version, actions, about, [(APP, state.sequence)])
        except FileExistsError as error:
            raise CheckpointError(
                f"somebody else writes the table at {self._public.path}: version {version} is there already"
            ) from error
        if version % _CHECKPOINT_EVERY == 0:
            self._public.open().create_checkpoint()
            self._public.open().cleanup_metadata()
        self._public.persist()
        self._files = files

    def _vacuum(self) -> None:
        oldest = time.time() - self._keep_s
        files = self._loaded()
        present = {file.run.path for file in files}
        present |= {vector_path(self._public.path, file.vector).name for file in files if file.vector}
        for folder, pattern in (
            (self._public.path, "part-*"),
            (self._public.path, "*.bin"),
            (self._owners, "part-*"),
        ):
            for file in folder.glob(pattern):
                if file.name not in present and file.stat().st_mtime < oldest:
                    file.unlink(missing_ok=True)


def _read(path: TablePath) -> pa.Table:
    with parquet_file(path) as file:
        return file.read()


def _add(file: PublicFile, *, changes: bool = True) -> dict[str, Any]:
    stats = {"numRecords": file.run.rows, "tightBounds": file.vector is None}
    return added(file.run.path, file.run.size, json.dumps(stats), changes=changes, vector=file.vector)


def _remove(file: PublicFile, *, changes: bool) -> dict[str, Any]:
    return removed(file.run.path, file.run.size, changes=changes, vector=file.vector)
