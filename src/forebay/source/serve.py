"""A task of a shared read: fetch and decode once, then do for each view what it asks for, and answer with little.

What it answers are rows of `ANSWER`: the files that it wrote, the groups that it made, the views it could not serve and why,
and an account of what it read. A view that fails here fails alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pyarrow as pa

from forebay.connectors.contract import RowPlaces, SourceBatch, SourceConfig, SourceConnector, Split
from forebay.connectors.registry import default_registry
from forebay.deadletter.router import Router
from forebay.errors import ForebayError, NewFieldsError, UnsupportedSqlError
from forebay.object_path import take_settings
from forebay.source import accounts
from forebay.source.event_times import NewestTimes, segments_of
from forebay.source.key_marks import KeyTimes
from forebay.source.late_letters import as_rejected, wants_letters, with_places
from forebay.source.outlets import GroupOutlet, Outlet, outlet_of
from forebay.source.serving import Serving
from forebay.source.task_traces import TaskTraces
from forebay.source.treatment import TreatingRouter, Treatment

ANSWER = pa.schema([("kind", pa.string()), ("view", pa.string()), ("body", pa.binary())])
BATCH, ACCOUNT, FAILED, KEYS = "batch", "account", "failed", "keys"  # and what outlets answer
ROWS, BYTES = (
    32_768,
    8 * 1024 * 1024,
)  # handed to views at a time: ten views look at each batch, whatever its size

AT_A_TIME = 16  # views whose files the disk takes: each thread does nothing but wait


@cache
def _waiters() -> ThreadPoolExecutor:
    """Of a worker, for all its tasks: starting threads takes longer than the disk does."""
    return ThreadPoolExecutor(AT_A_TIME, "forebay-answer")


_Row = tuple[str, str, bytes]
_Judged = tuple[pa.RecordBatch, int | None]  # rows, and the end of windows that are closed for them


def serve(
    config: SourceConfig,
    split: Split | None,
    serving: Serving,
    treatment: Treatment,
    event_time: str | None,
    traces: int = 0,
) -> Iterator[pa.RecordBatch]:
    """The answer of one task. `traces`: so many records that carry a trace are named, and as many refused ones."""
    rows: list[_Row] = []
    if serving.header is not None:
        rows.append((BATCH, "", serving.header.encode()))
    take_settings(serving.stores)
    if split is not None:
        rows += _Task(config, split, serving, treatment, event_time, traces).run()
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
        traces: int,
    ) -> None:
        self._most_traces = traces
        self._columns = default_registry().make(config).full_schema().names
        self._config = config
        self._places: RowPlaces | None = None
        if wants_letters(serving.views):
            self._config, self._places = with_places(config)
        self._split = split
        self._serving = serving
        self._treatment = treatment
        self._event_time = event_time
        self._times = NewestTimes(split, event_time)
        keyed = serving.keyed
        self._keys = KeyTimes(keyed.column, event_time) if keyed and event_time else None
        self._of_key = keyed.loaded() if keyed else None
        self._outlets: dict[str, Outlet] = {}
        self._failed: dict[str, Exception] = {}

    def run(self) -> Iterator[_Row]:
        for view in self._serving.views:
            with self._alone(view.name):
                self._outlets[view.name] = outlet_of(
                    view,
                    self._event_time,
                    self._columns,
                    self._places,
                    self._of_key,
                    self._serving.marks.watermark_ms,
                )
        connector = default_registry().make(self._config)
        names = [view.name for view in self._serving.views]
        router = TreatingRouter(
            self._config, connector, self._split, self._treatment, " ".join(sorted(names))
        )
        connector.wanted = replace(router.wanted, traces=self._most_traces)
        traces = TaskTraces(self._most_traces)
        account = accounts.Account(mask=connector.mask)
        try:
            for rows, closed_ms in _together(self._good_rows(connector, router, account, traces)):
                self._hand_out(rows, closed_ms)
            self._write_late_letters(connector, router)
            answers = self._answers(router)
            account.dlq, account.limited = router.letters, router.limited
        except ForebayError as error:
            for outlet in self._outlets.values():
                outlet.discard()
            # With new fields, the whole read begins anew, with these columns.
            if isinstance(error, NewFieldsError) or not self._serving.catching_up:
                raise
            # What a view has missed may be gone. The others are not to wait for it.
            self._failed = {view.name: error for view in self._serving.views}
            answers = []
        finally:
            router.close()
            connector.close()
        yield from answers
        yield from self._failures()
        form = accounts.to_form(self._split, account) | router.to_form()
        form |= {"views": names, **self._times.to_form(), **traces.to_form()}
        yield ACCOUNT, "", json.dumps(form).encode()
        times = self._keys.to_bytes() if self._keys else None
        if times is not None:
            yield KEYS, "", times

    def _good_rows(
        self, connector: SourceConnector, router: Router, account: accounts.Account, traces: TaskTraces
    ) -> Iterator[_Judged]:
        for batch in connector.read_batch(self._split):
            account.count(batch)
            traces.see(batch)
            router.see(batch)
            if batch.records.num_rows:
                self._times.see(batch)
                yield from self._judged(batch)

    def _judged(self, batch: SourceBatch) -> Iterator[_Judged]:
        """The rows, with which windows are closed for them. None is for a row whose partition is not known."""
        marks, rows = self._serving.marks, batch.records
        if not marks.own:
            yield rows, marks.watermark_ms
            return
        known = 0
        for place, start, end in segments_of(batch, self._split):
            if start > known:
                yield rows.slice(known, start - known), None
            yield rows.slice(start, end - start), marks.of(place)
            known = end
        if known < rows.num_rows:
            yield rows.slice(known), None

    def _hand_out(self, rows: pa.RecordBatch, closed_ms: int | None) -> None:
        if self._keys is not None:
            self._keys.see(rows)
        for name in list(self._outlets):
            try:
                self._outlets[name].see(rows, closed_ms)
            except Exception as error:  # whatever it is, it is this view's alone
                self._failed[name] = error
                del self._outlets[name]

    def _write_late_letters(self, connector: SourceConnector, router: Router) -> None:
        """Of rows that are late for views that want them as letters."""
        late = {
            name: outlet.late.records
            for name, outlet in self._outlets.items()
            if isinstance(outlet, GroupOutlet) and outlet.late is not None and outlet.late.records
        }
        if late and self._treatment.policy.strategy != "dead_letter":
            for name in late:
                self._failed[name] = UnsupportedSqlError(
                    f"LATE DATA TO DEAD LETTERS: source '{self._config.name}' has no dead letters any more",
                    remedy=f"ALTER SOURCE {self._config.name} ON ERROR = dead_letter WITH (…), then START VIEW {name}",
                )
                del self._outlets[name]
            return
        records = [record for found in late.values() for record in found]
        if records:
            router.late(as_rejected(connector, self._event_time, records))

    def _answers(self, router: Router) -> list[_Row]:
        """Of all views: each encodes its file, then the disk takes all of them side by side. Meanwhile the brokers take the
        letters, which are durable when this returns.
        """

        letters = _waiters().submit(router.finish)
        answers: dict[str, list[_Row]] = {}
        for name, outlet in self._outlets.items():
            with self._alone(name):
                answers[name] = [(kind, name, body) for kind, body in outlet.answers()]
        persisted = {name: _waiters().submit(self._outlets[name].persist) for name in answers}
        rows: list[_Row] = []
        for name, done in persisted.items():
            with self._alone(name):
                done.result()
                rows += answers[name]
        letters.result()
        return rows

    @contextmanager
    def _alone(self, view: str) -> Iterator[None]:
        """Whatever fails here, it is this view's alone."""
        try:
            yield
        except Exception as error:
            self._failed[view] = error

    def _failures(self) -> Iterator[_Row]:
        for name, reason in self._failed.items():
            text = str(reason) if isinstance(reason, ForebayError) else f"{type(reason).__name__}: {reason}"
            yield FAILED, name, text.encode()


def _together(batches: Iterable[_Judged]) -> Iterator[_Judged]:
    """Small batches as larger ones, as far as the same windows are closed for them."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    judged: int | None = None
    for batch, closed_ms in batches:
        if held and closed_ms != judged:
            yield pa.concat_batches(held), judged
            held, rows, size = [], 0, 0
        held.append(batch)
        judged, rows, size = closed_ms, rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield pa.concat_batches(held), judged
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held), judged
