"""Following a view: the changes of each Delta commit as Arrow batches, from any version on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType

import pyarrow as pa
from deltalake import DeltaTable

from forebay.views.table import ViewTable

POLL_S = 0.1
CHANGE_TYPE = "_change_type"  # insert, update_preimage, update_postimage, delete
VERSION = "_commit_version"


class Subscription:
    """An iterator of Arrow batches: the view's columns, `_change_type` and `_commit_version`.

    `position` is the last version that was handed out whole; give it to `subscribe(…, after=…)` and the
    next subscription goes on behind it. With a timeout the iterator ends when nothing has come for that
    long; without one it waits for ever.
    """

    def __init__(
        self,
        table: ViewTable,
        *,
        after: int | None = None,
        timeout: float | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.position = -1 if after is None else after
        self._table = table
        self._timeout = timeout
        self._check = check
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"after version {self.position}"
        return f"<forebay.Subscription {self._table.path.name}, {state}>"

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
        last = time.monotonic()
        while not self._closed:
            newest = self._table.open().version()
            while self.position < newest and not self._closed:
                version = self.position + 1
                for batch in self._changes(version):
                    last = time.monotonic()
                    yield batch
                self.position = version
            if self._timeout is not None and time.monotonic() - last >= self._timeout:
                return
            self._check()
            time.sleep(POLL_S)

    def _changes(self, version: int) -> Iterator[pa.RecordBatch]:
        # A handle of its own: reading the feed must not disturb the writer's.
        feed = DeltaTable(str(self._table.path)).load_cdf(starting_version=version, ending_version=version)
        table = pa.table(feed).drop_columns(["_commit_timestamp"])
        yield from (batch for batch in table.to_batches() if batch.num_rows)
