"""A task of a shared read: fetch and decode once, then do for each view what it asks for, and answer with little.

What it answers are rows of `ANSWER`: the files that it wrote, the groups that it made, the views it could not serve and why,
and an account of what it read. A view that fails here fails alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from forebay.connectors.contract import SourceConfig, SourceConnector, Split
from forebay.connectors.registry import default_registry
from forebay.deadletter.router import Router
from forebay.errors import ForebayError, NewFieldsError
from forebay.source import accounts
from forebay.source.outlets import Outlet, outlet_of
from forebay.source.serving import Serving
from forebay.source.treatment import TreatingRouter, Treatment

ANSWER = pa.schema([("kind", pa.string()), ("view", pa.string()), ("body", pa.binary())])
BATCH, ACCOUNT, FAILED = "batch", "account", "failed"  # and what outlets answer
ROWS, BYTES = (
    32_768,
    8 * 1024 * 1024,
)  # handed to views at a time: ten views look at each batch, whatever its size

_Row = tuple[str, str, bytes]


def serve(
    config: SourceConfig,
    split: Split | None,
    serving: Serving,
    treatment: Treatment,
    event_time: str | None,
) -> Iterator[pa.RecordBatch]:
    """The answer of one task."""
    rows: list[_Row] = []
    if serving.header is not None:
        rows.append((BATCH, "", serving.header.encode()))
    if split is not None:
        rows += _Task(config, split, serving, treatment, event_time).run()
    columns = list(zip(*rows, strict=True))
    yield pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ANSWER, strict=True)], schema=ANSWER
    )


class _Task:
    def __init__(
        self,
        config: SourceConfig,
        split: Split,
        serving: Serving,
        treatment: Treatment,
        event_time: str | None,
    ) -> None:
        self._config = config
        self._split = split
        self._serving = serving
        self._treatment = treatment
        self._event_time = event_time
        self._newest: int | None = None
        self._outlets: dict[str, Outlet] = {}
        self._failed: dict[str, Exception] = {}

    def run(self) -> Iterator[_Row]:
        for view in self._serving.views:
            try:
                self._outlets[view.name] = outlet_of(view)
            except Exception as error:
                self._failed[view.name] = error
        connector = default_registry().make(self._config)
        names = [view.name for view in self._serving.views]
        router = TreatingRouter(
            self._config, connector, self._split, self._treatment, " ".join(sorted(names))
        )
        connector.wanted = router.wanted
        account = accounts.Account()
        try:
            for rows in _together(self._good_rows(connector, router, account)):
                self._hand_out(rows)
            router.finish()
            account.dlq, account.limited = router.letters, router.limited
        except NewFieldsError:
            raise  # the whole read begins anew, with these columns
        except ForebayError as error:
            if not self._serving.catching_up:
                raise
            # What a view has missed may be gone. The others are not to wait for it.
            self._failed = {view.name: error for view in self._serving.views}
            self._outlets = {}
        finally:
            router.close()
            connector.close()
        yield from self._answers()
        form = accounts.to_form(self._split, account) | router.to_form()
        form |= {"views": names, "newest_us": self._newest}
        yield ACCOUNT, "", json.dumps(form).encode()

    def _good_rows(
        self, connector: SourceConnector, router: Router, account: accounts.Account
    ) -> Iterator[pa.RecordBatch]:
        for batch in connector.read_batch(self._split):
            account.count(batch)
            router.see(batch)
            if batch.records.num_rows:
                yield batch.records

    def _hand_out(self, rows: pa.RecordBatch) -> None:
        if self._event_time is not None:
            times = rows.column(self._event_time)
            if pa.types.is_date(times.type):
                times = times.cast(pa.timestamp("us"))
            newest = pc.max(times.cast(pa.int64())).as_py()
            self._newest = max((at for at in (self._newest, newest) if at is not None), default=None)
        for name in list(self._outlets):
            try:
                self._outlets[name].see(rows)
            except Exception as error:  # whatever it is, it is this view's alone
                self._failed[name] = error
                del self._outlets[name]

    def _answers(self) -> Iterator[_Row]:
        for name, outlet in self._outlets.items():
            try:
                found = list(outlet.answers())
            except Exception as error:
                self._failed[name] = error
            else:
                yield from ((kind, name, body) for kind, body in found)
        for name, reason in self._failed.items():
            text = str(reason) if isinstance(reason, ForebayError) else f"{type(reason).__name__}: {reason}"
            yield FAILED, name, text.encode()


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches as larger ones."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)
