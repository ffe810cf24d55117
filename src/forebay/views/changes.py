"""Following a view: the changes of each Delta commit as Arrow batches, from any version on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from forebay.errors import ChangesGoneError
from forebay.object_path import ObjectPath, TablePath, parquet_file
from forebay.views.compaction import as_in
from forebay.views.followers import following
from forebay.views.merged import PlaceReader
from forebay.views.table import ViewTable
from forebay.views.versions import TableVersion, Versions

log = logging.getLogger("forebay.views")

POLL_S = 0.1
POLL_STORE_S = 1.0  # each look at an object store is a request that is paid for
MERGED_AGAIN = 5  # a file may be merged again while its rows are looked for
CHANGE_TYPE = "_change_type"  # insert, update_preimage, update_postimage, delete
VERSION = "_commit_version"


class ChangeFeed(Protocol):
    """The changes of a view, version by version."""

    view: str  # which one among all homes, see `followers`

    @property
    def name(self) -> str:
        """Of the view, for people."""
        ...

    @property
    def poll_s(self) -> float:
        """How long to wait between two looks."""
        ...

    def newest(self) -> int: ...

    def before_all(self) -> int:
        """The position of a subscriber that is new."""
        ...

    def after(self, position: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The next version, and the rows that it changed, with `_change_type`. ChangesGoneError."""
        ...


class Subscription:
    """An iterator of Arrow batches: the view's columns, `_change_type` and `_commit_version`.

    `position` is the last version that was handed out whole; give it to `subscribe(…, after=…)` and the
    next subscription goes on behind it. Without `after` it begins with the oldest version that the view's
    retention has left. With a timeout the iterator ends when nothing has come for that
    long; without one it waits for ever.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        *,
        after: int | None = None,
        timeout: float | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._feed = feed
        self.position = feed.before_all() if after is None else after
        self._timeout = timeout
        self._check = check
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"after version {self.position}"
        return f"<forebay.Subscription {self._feed.name}, {state}>"

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, from any thread: it stops before its next batch."""
        self._closed = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._timeout == 0:  # takes what is there, and follows nothing
            return self._batches()
        return self._counted()

    def _counted(self) -> Iterator[pa.RecordBatch]:
        with following(self._feed.view):
            yield from self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        last = time.monotonic()
        while not self._closed:
            newest = self._feed.newest()
            while self.position < newest and not self._closed:
                version, batches = self._feed.after(self.position)
                for batch in batches:
                    last = time.monotonic()
                    yield batch.append_column(VERSION, pa.array([version] * batch.num_rows, pa.int64()))
                self.position = version
            if self._timeout is not None and time.monotonic() - last >= self._timeout:
                return
            self._check()
            time.sleep(self._feed.poll_s)


class TableChanges:
    """Of a Delta table."""

    def __init__(self, table: ViewTable) -> None:
        self._table = table
        self.view = str(table.path.parent)
        self._versions = Versions(table.path)
        self._places = PlaceReader(table.path)

    @property
    def name(self) -> str:
        return self._table.path.parent.name

    @property
    def poll_s(self) -> float:
        return poll_s(self._table.path)

    def newest(self) -> int:
        return int(self._table.open().version())

    def after(self, position: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        return position + 1, self._changes(position + 1)

    def before_all(self) -> int:
        oldest = self._versions.oldest()
        if oldest > 0:
            log.info(
                "view '%s': the changes begin with version %d, older ones are past the view's retention",
                self.name,
                oldest,
            )
        return oldest - 1

    def _changes(self, number: int) -> Iterator[pa.RecordBatch]:
        """What a version changed: by its change files, or else by the files that it added and removed."""
        version = self._versions.get(number)
        if version is None:
            raise self._gone(number)
        schema = pa.schema(self._table.open().schema().to_arrow())
        try:
            found = [*self._files(version, schema)]
        except FileNotFoundError:
            raise self._gone(number) from None
        yield from (batch for batch in found if batch.num_rows)

    def _files(self, version: TableVersion, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if version.changed:
            with_kind = schema.append(pa.field(CHANGE_TYPE, pa.string()))
            yield from self._read(version.changed, with_kind)
            return
        for kind, names in (("insert", version.added), ("delete", version.removed)):
            for batch in self._read(names, schema):
                yield batch.append_column(CHANGE_TYPE, pa.array([kind] * batch.num_rows, pa.string()))

    def _read(self, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for name in names:
            for batch in self._rows_of(name):
                yield as_in(batch, schema)

    def _rows_of(self, name: str) -> Iterator[pa.RecordBatch]:
        """Of a file, or of the one that it was merged into. FileNotFoundError if neither is there."""
        try:
            yield from _rows(self._table.path / name)
        except FileNotFoundError:
            for _ in range(MERGED_AGAIN):  # while it is looked for
                place = self._versions.merged.find(name)
                if place is None:
                    break
                try:
                    yield from self._places.rows(place)
                    return
                except FileNotFoundError:
                    continue
            raise

    def _gone(self, number: int) -> ChangesGoneError:
        oldest = self._versions.oldest()
        return ChangesGoneError(
            f"version {number} of view '{self.name}' is past the view's retention; "
            f"the oldest that is there is {oldest}",
            remedy=f"subscribe after {oldest - 1} and take what is missing from a SELECT, "
            "or give the view a longer 'retention'",
        )


def poll_s(table: TablePath) -> float:
    """How often to look at a table for what is new."""
    return POLL_STORE_S if isinstance(table, ObjectPath) else POLL_S


def _rows(path: TablePath) -> Iterator[pa.RecordBatch]:
    with parquet_file(path) as file:
        yield from file.iter_batches()
