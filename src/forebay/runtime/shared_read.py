"""One streaming query that reads a source for many views.

Its tasks decode a micro-batch once and write the files of each view (`source/serve.py`). Here, on the driver, each view's
table takes its files in one commit, side by side with the others. A view's table and its position belong to that view
alone: one that fails or is slow is served no more, and the others go on.

A view stands where the read stands, unless `ReadState` has a position of its own for it: it has just come, it was
stopped, or it has failed. A batch that is repeated after a crash is left out by the tables that have it.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from forebay import threads
from forebay.catalog import Catalog, EventKind, QueryState
from forebay.connectors.contract import Offsets, PartitionOffsets, SourceConnector
from forebay.deadletter.policy import SourceFolder
from forebay.errors import ForebayError, NotSharedError, QueryFailedError, StorageError, from_text
from forebay.files import make_folder, write_whole
from forebay.object_path import storage_away
from forebay.runtime import checkpoints
from forebay.runtime.batch_spans import BatchSpans
from forebay.runtime.checkpoint_places import CheckpointPath
from forebay.runtime.counting import batch_record
from forebay.runtime.counting import report as report_errors
from forebay.runtime.events import BatchReport
from forebay.runtime.keyed_read import KeyedRead
from forebay.runtime.live_run import by_source
from forebay.runtime.read_accounts import ReadAccounts
from forebay.runtime.read_answer import BatchAnswer, answer_of
from forebay.runtime.read_paths import ReadPaths
from forebay.runtime.shared_view import SharedView
from forebay.runtime.stream_run import OnCheckpoint, StreamRun
from forebay.runtime.task_accounts import hand_on, judge, newest_times
from forebay.source import watermarks
from forebay.source.accounts import Account
from forebay.source.batch_size import Cause
from forebay.source.budget import InFlight
from forebay.source.flow_folder import ALL, ASIDE, FlowFolder, Plan
from forebay.source.serving import Participant, ReadState
from forebay.views.common_table import OffsetsTakenError

log = logging.getLogger("forebay.read")

SLOW_S = 10.0  # so long the other views wait for one whose table takes its batch


class SharedRead(StreamRun):
    """Of one source. `frame` makes the streaming DataFrame of answers, given where it starts without a checkpoint."""

    def __init__(
        self,
        source: str,
        paths: ReadPaths,
        connector: SourceConnector,
        folder: SourceFolder,
        catalog: Catalog,
        frame: Callable[[ReadPaths], DataFrame],
        *,
        evolve: Callable[[str, int], None],
        session_lock: AbstractContextManager[Any],
    ) -> None:
        super().__init__(
            f"{source} for all" if paths.read == ALL else f"{source} for {paths.root.parent.name}",
            f"the read of source '{source}'",
            paths.checkpoint,
            paths.drain,
            read=paths.read,
            flows={source: FlowFolder.of(folder.root)},
            output_mode="append",
            on_state=lambda name, state, message: self._tell_views(state, message),
            evolve=evolve,
            session_lock=session_lock,
        )
        self.source = source
        self.paths = paths
        self.views: dict[str, SharedView] = {}  # those that are served
        self.after_batch: Callable[[SharedRead], None] = lambda read: None
        self.keyed: KeyedRead | None = None  # where keys have watermarks of their own
        self._connector = connector
        self._share = connector.share
        self._folder = folder
        self._catalog = catalog
        self._accounts = ReadAccounts(paths.accounts, connector)
        self._frame = frame
        self._serving = threading.RLock()  # nobody comes or goes while a batch is kept
        self._kept: dict[int, list[tuple[SharedView, Offsets, int]]] = {}  # by batch: to be announced
        self._partly = (
            -1
        )  # the last batch of which a table has a part: the next one brings the rest, and the group waits
        make_folder(paths.root, 0o700)
        self._begins: Offsets | None = None
        if checkpoints.exists(self.checkpoint) and paths.start.exists():
            self._begins = json.loads(paths.start.read_text())
        self._state = self._resumed(ReadState.read(paths.state))

    def _resumed(self, state: ReadState) -> ReadState:
        """Nobody is served yet. A view that stood where the read stood has that position now, if it is known."""
        self._remember_checkpoint()
        position = self.position
        views = {
            name: replace(each, position=each.position or position, ready=False)
            for name, each in state.views.items()
        }
        return replace(state, views=views)

    @property
    def sources(self) -> Mapping[str, SourceConnector]:
        return {self.source: self._connector}

    # -- who is served -------------------------------------------------------------------------------

    @property
    def position(self) -> Offsets | None:
        """Where the read stands; None before it has begun anywhere."""
        return self.progress.positions.get(self.source) or self._begins

    def left_at(self, view: SharedView) -> Offsets | None:
        """Where a view stood when it was last served here; None if it never was, or if that is not known any more."""
        found = self._state.views.get(view.name)
        if found is None or found.position is None:
            return None
        return later_of_table(self._connector, self.checkpoint, view, found.position)

    def begin_at(self, position: Offsets) -> None:
        """A read that has no checkpoint yet starts here."""
        write_whole(self.paths.start, json.dumps(position).encode())
        self._begins = position

    def add(self, view: SharedView, position: Offsets) -> None:
        """Serve a view from the next batch on, which brings it what it has missed."""
        with self._serving:
            view.position = position
            view.leave = self.remove
            view.decision = self.paths.watermark
            self._save(self._state.with_view(Participant(view.served(), position)))
            self.views[view.name] = view
        if self._share is not None and self.run is not None:
            self._join_group()
        view.set_state(self.state if self.run else QueryState.STARTING, "")

    def remove(self, view: SharedView) -> None:
        """Serve it no more. Where it stands is kept, for when it comes back."""
        with self._serving:
            if self.views.pop(view.name, None) is not None:
                self._save(self._state.with_view(Participant(view.served(), view.position, ready=False)))

    def forget(self, name: str) -> None:
        """A view that was dropped, or is served elsewhere."""
        with self._serving:
            self.views.pop(name, None)
            self._save(self._state.without(name))

    @property
    def known(self) -> set[str]:
        """All views that it serves or has served, but for those that were dropped."""
        return set(self._state.views)

    def _save(self, state: ReadState) -> None:
        state.write(self.paths.state)
        self._state = state

    # -- a group that is shared ----------------------------------------------------------------------

    def start(self, frame: DataFrame) -> None:
        if self._share is not None:
            self._give_up_unclaimed()
            self._join_group()
        super().start(frame)

    def _give_up_unclaimed(self) -> None:
        """A batch that no table has is planned anew: its partitions may be somebody else's by now."""
        batch = checkpoints.in_flight(self.checkpoint) if checkpoints.exists(self.checkpoint) else None
        if batch is not None and self._claimed() != self._claim(batch):
            log.info("%s: batch %d was in no table, and is planned anew", self.what, batch)
            checkpoints.give_up(self.checkpoint, batch)

    def _join_group(self) -> None:
        assert self._share is not None
        self._share.on_rebalance = self._on_rebalance
        self._share.join(self.paths.share, self._checkpointed, self.is_active, self._added)

    def _added(self, at: PartitionOffsets) -> PartitionOffsets:
        """How far all tables here have partitions: a member that was killed may have added more than it committed.

        It saves reading what no table takes. A view that is yet to come, or to come back, may want what the others have.
        """
        views = list(self.views.values())
        if self._checkpointed() is None or {view.name for view in views} != self.known:
            return at
        try:
            found = [view.added(at) for view in views]
            return {key: min(each[key] for each in found) for key in at} if found else at
        except Exception as error:  # it is found out later, by each table
            log.warning("%s: how far tables are is not known: %s", self.what, error)
            return at

    def _on_rebalance(self, what: str) -> None:
        try:
            self._catalog.note(self.source, EventKind.REBALANCE, what)
        except (
            sqlite3.Error
        ) as error:  # of a full disk, or of a session that closes: the group must not feel it
            log.warning("%s: %s, which the catalog could not keep: %s", self.what, what, error)

    def _checkpointed(self) -> Offsets | None:
        done = checkpoints.committed(self.checkpoint)
        return None if done is None else by_source(done.offsets).get(self.source)

    def _claimed(self) -> str:
        return self.paths.claimed.read_text() if self.paths.claimed.exists() else ""

    def _claim(self, batch: int) -> str:
        return f"{checkpoints.query_id(self.checkpoint)} {batch}"

    def _make_ours(self, answer: BatchAnswer, batch: int) -> None:
        """Before any table takes a batch: raises if its partitions have gone. One that is repeated may be in a table already."""
        if self._share is None or self._claimed() == self._claim(batch):
            return
        self._share.confirm(answer.header.start, answer.header.end)
        write_whole(self.paths.claimed, self._claim(batch).encode())

    # -- running -------------------------------------------------------------------------------------

    def build(self) -> DataFrame:
        with self._serving:
            state = self._state
            for name, view in self.views.items():
                view.replan()
                state = replace(
                    state, views={**state.views, name: replace(state.views[name], view=view.served())}
                )
            self._save(state)
        return self._frame(self.paths)

    def write(self, frame: DataFrame, batch: int) -> None:
        began, spans = time.monotonic(), BatchSpans(self.source, self._connector, batch)
        answer = answer_of(frame.toArrow())
        self.measured(self.source, answer.read())
        query_id = checkpoints.query_id(self.checkpoint)
        if self.keyed is not None:
            answer = replace(answer, key_marks=self.keyed.marks(answer.header.start))
        with self._serving:
            judge(self.source, self._folder, answer.accounts)
            self._make_ours(answer, batch)
            served = [view for view in self.views.values() if self._is_for(view, answer)]
            late: dict[str, int] = {}
            self._accounts.write(query_id, batch, [view.name for view in served], answer)
            failed = self._keep(served, answer, query_id, batch, late)
            again = {
                name: self._going_on(name, answer, why)
                for name, why in failed.items()
                if isinstance(why, OffsetsTakenError) and name in self.views
            }
            failed = {name: why for name, why in failed.items() if name not in again}
            self._partly = batch if again else self._partly
            took_ms = int((time.monotonic() - began) * 1000)
            kept = [
                view
                for view in served
                if view.name in self.views and view.name not in failed and view.name not in again
            ]
            self._count(kept, answer, batch, late, took_ms)
            for view in kept:
                view.position = answer.header.end
            self._settle(kept, failed, again, answer)
            hand_on(self._folder, self.paths.health, answer.accounts)
            watermarks.remember(self.paths.event_times, newest_times(answer.accounts))
            if self.keyed is not None:
                self.keyed.remember(answer, all_read=all(view.progress.lag == 0 for view in kept))
            spans.kept([view.name for view in kept], answer.accounts, self._folder.read_policy)
            broken = {view: failed[view.name] for view in served if view.name in failed}
        for view, why in broken.items():
            if (away := storage_away(view.paths.table, why)) is not None:
                self._try_again(view, away)
            else:
                view.fail(_as_error(view, why))
        if self._share is not None and broken and not self.views:
            self._share.leave(wait=False)  # others can do what nobody here can

    def _is_for(self, view: SharedView, answer: BatchAnswer) -> bool:
        """Whether a batch goes on where the view stands. One of this name may have gone and come since it was planned."""
        planned = answer.header.served.get(view.name)
        reached = self._connector.reached
        return planned is not None and reached(planned, view.position) and reached(view.position, planned)

    def _keep(
        self,
        served: list[SharedView],
        answer: BatchAnswer,
        query_id: str,
        batch: int,
        late: dict[str, int],
    ) -> dict[str, str | Exception]:
        """Each view's table takes its batch, side by side. Why one did not, by view."""
        failed: dict[str, str | Exception] = {
            view.name: answer.failed[view.name] for view in served if view.name in answer.failed
        }
        working = {}
        for view in served:
            if view.name in failed:
                continue

            def keep(view: SharedView = view) -> None:
                view.lock.check()
                late[view.name] = view.keep(answer, query_id, batch)
                view.away.over()

            def note(error: Exception, view: SharedView = view) -> None:
                failed[view.name] = error

            working[view.name] = threads.start(f"forebay-keep-{view.name}", keep, note, logged=False)
        deadline = time.monotonic() + SLOW_S
        for name, thread in working.items():
            thread.join(max(0.0, deadline - time.monotonic()) if len(served) > 1 else None)
            if thread.is_alive():
                self._set_aside(self.views[name], thread, answer, failed)
        return failed

    def _going_on(self, name: str, answer: BatchAnswer, taken: OffsetsTakenError) -> Offsets:
        """Where a view goes on whose table has a part of the batch from another member of the group."""
        assert self._share is not None
        log.info("%s: view '%s': %s; it is left out", self.what, name, taken)
        header = answer.header
        return self._share.going_on(header.served[name], header.end, answer.spans_of(name), taken.spans)

    def _set_aside(
        self,
        view: SharedView,
        thread: threading.Thread,
        answer: BatchAnswer,
        failed: Mapping[str, str | Exception],
    ) -> None:
        """A view whose table is slow holds up nobody else: it is served again once its table has the batch."""
        position = answer.header.served[view.name]
        self.views.pop(view.name)
        aside = self._in_flight_aside(view, answer.read())
        self._save(self._state.with_view(Participant(view.served(), position, ready=False)))
        message = f"its table did not take a batch within {SLOW_S:.0f} s: the other views go on, it follows"
        view.set_state(QueryState.RETRYING, message)

        def come_back() -> None:
            thread.join()
            self.flows[self.source].forget(aside, os.getpid())
            why = failed.get(view.name)
            if why is not None and not isinstance(why, OffsetsTakenError):
                view.fail(_as_error(view, why))
            elif view.state is QueryState.RETRYING and not self._stopping.is_set():
                if isinstance(why, OffsetsTakenError):
                    view.position = self._going_on(view.name, answer, why)
                else:
                    view.position = later_of_table(self._connector, self.checkpoint, view, position)
                    view.count_up_to_here(self._catalog)
                self.add(view, view.position)

        threads.start(
            f"forebay-follow-{view.name}", come_back, lambda error: view.fail(_as_error(view, error))
        )

    def _try_again(self, view: SharedView, why: StorageError) -> None:
        """A view whose storage is away holds up nobody else: it is served again after a while, from where it stands."""
        view.set_state(QueryState.RETRYING, str(why))

        def come_back() -> None:
            while view.state is QueryState.RETRYING and not self._stopping.wait(view.away.failed()):
                try:
                    position = later_of_table(self._connector, self.checkpoint, view, view.position)
                    view.count_up_to_here(self._catalog)
                except Exception as error:
                    if storage_away(view.paths.table, error) is None:
                        raise
                    continue
                self.add(view, position)
                return

        threads.start(f"forebay-away-{view.name}", come_back, lambda error: view.fail(_as_error(view, error)))

    def _in_flight_aside(self, view: SharedView, batch: InFlight) -> str:
        """What its table has not taken yet is in flight as before, although the read goes on. Returns the name it has there."""
        name = f"{ASIDE}{view.name}"
        plan = Plan(
            name, (view.name,), os.getpid(), int(time.time() * 1000), batch.records, batch.bytes, batch.records,
            Cause.KEPT, f"the table of view {view.name} has not taken its batch yet",
        )  # fmt: skip
        self.flows[self.source].write(plan)
        return name

    def _count(
        self, kept: list[SharedView], answer: BatchAnswer, batch: int, late: Mapping[str, int], took_ms: int
    ) -> None:
        records, announced = [], list[tuple[SharedView, Offsets, int]]()
        totals = {each.view: each for each in self._catalog.totals(source=self.source)}
        for view in kept:
            counted = view.count(totals.get(view.name), answer, late.get(view.name, 0), took_ms)
            if counted is not None:
                account, number = counted
                lost = self._connector.lost(answer.header.served[view.name], answer.header.end)
                records.append(batch_record(view.name, self.source, number, account, lost, answer.header.end))
            announced.append((view, answer.header.end, counted[0].records if counted else 0))
        if records:
            self._catalog.record_batch(*records)
            everything = Account()
            for task in answer.accounts:
                everything.add(task.account)
            report_errors(self.source, ",".join(sorted(view.name for view in kept)), everything)
        self._accounts.remove_counted(self._catalog.totals, self.source, self.known)
        self._kept[batch] = announced

    def _settle(
        self,
        kept: list[SharedView],
        failed: Mapping[str, str | Exception],
        again: Mapping[str, Offsets],
        answer: BatchAnswer,
    ) -> None:
        """Who joined stands where the read stands; who failed stands where this batch began for it, and is served no more.

        `again` are those that the next batch brings what this one did not, from where on.
        """
        state = self._state
        for name, position in again.items():
            self.views[name].position = position
            state = state.with_view(Participant(self.views[name].served(), position))
        for view in kept:
            if state.views[view.name].position is not None:
                joined = replace(state.views[view.name], position=None)
                state = replace(state, views={**state.views, view.name: joined})
        for name in [name for name in failed if name in self.views]:
            view = self.views.pop(name)
            aside = Participant(view.served(), answer.header.served[name], ready=False)
            state = state.with_view(aside)
        if state is not self._state:
            self._save(state)

    def record(self, report: BatchReport, catalog: Catalog, on_checkpoint: OnCheckpoint) -> None:
        """A batch is in the checkpoint: its views have it, and the group may."""
        latest = next((each.latest for each in report.sources if each.latest), None)
        ends = by_source(each.end for each in report.sources if each.end)
        with self.changed:
            if ends and report.batch >= self.progress.batch:
                self.progress.positions = {**self.progress.positions, **ends}
                self.progress.batch = report.batch
            self.progress.reported = max(self.progress.reported, report.batch)
            self.changed.notify_all()
        for batch in sorted(number for number in self._kept if number <= report.batch):
            announced = self._kept.pop(batch)
            with ExitStack() as held:
                # Whoever waits for a view to get here, and then for the commit, must find that one waiting.
                for view, _, _ in announced:
                    held.enter_context(view.changed)
                for view, end, records in announced:
                    self._announce(view, end, records, report)
                if report.batch != self._partly:
                    on_checkpoint(self.source, report.batch, ends.get(self.source, {}))
        if latest is not None:
            for view in list(self.views.values()):
                with view.changed:
                    view.progress.lag = self._connector.count(view.progress.positions[self.source], latest)
        self.after_batch(self)

    def _announce(self, view: SharedView, end: Offsets, records: int, report: BatchReport) -> None:
        progress = view.progress
        progress.positions = {self.source: end}
        progress.records_per_second = records * 1000 / max(report.took_ms, 1)
        if records:
            progress.batch += 1
            progress.batch_ms = report.took_ms
            view.batch_times.add(report.took_ms / 1000)
            self.made_progress()
        view.changed.notify_all()

    # -- states --------------------------------------------------------------------------------------

    def _tell_views(self, state: QueryState, message: str) -> None:
        if state is QueryState.FAILED and self._share is not None:
            self._share.leave(wait=False)
        if state is not QueryState.RUNNING and self.keyed is not None:
            self.keyed.stand_still()
        for view in list(self.views.values()):
            if state is QueryState.FAILED and self.error is not None:
                self.remove(view)
                view.fail(self.error)
            elif state is not QueryState.STOPPED:
                view.set_state(state, message)


def later_of_table(
    connector: SourceConnector, checkpoint: CheckpointPath, view: SharedView, position: Offsets
) -> Offsets:
    """Where a view stands that was at `position` before its last batch: its table may have that one already."""
    if not checkpoints.exists(checkpoint):
        return position
    held = view.last_batch(checkpoints.query_id(checkpoint))
    if held is None:
        return position
    try:
        ends = by_source(checkpoints.offsets(checkpoint, held))
    except FileNotFoundError:
        return position  # so old that Spark has forgotten it: the position is newer
    end = ends[view.source]
    return end if connector.reached(end, position) else position


def _as_error(view: SharedView, why: str | Exception) -> ForebayError:
    known = from_text(why) if isinstance(why, str) else why if isinstance(why, ForebayError) else None
    if known is None:
        return QueryFailedError(f"view '{view.name}' failed: {why}")
    if (
        isinstance(known, NotSharedError) and not view.paths.table.exists()
    ):  # here neither: no matter of clusters
        return QueryFailedError(
            f"view '{view.name}' failed: its table at {view.paths.table} is gone",
            remedy=f"put it back, then START VIEW {view.name}: it goes on where it stood. Or drop the view and create it again",
        )
    return QueryFailedError(f"view '{view.name}' failed: {known.code}: {known.message}", remedy=known.remedy)
