"""A view that a shared read serves: it has a table and a state of its own, and no streaming query."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forebay.backoff import Backoff
from forebay.catalog import Catalog, QueryState, Totals
from forebay.connectors.contract import Offsets, PartitionOffsets, SourceConnector
from forebay.errors import CheckpointError, ForebayError
from forebay.program import Program, output_schema
from forebay.runtime.counting import BatchToCount, recount
from forebay.runtime.live_run import LiveRun
from forebay.runtime.lock import ViewLock
from forebay.runtime.read_answer import BatchAnswer
from forebay.runtime.read_paths import of_source, of_view
from forebay.source.accounts import Account
from forebay.source.serving import ServedView
from forebay.views.paths import ViewPaths
from forebay.views.table import ViewTable

END = "forebay.end"  # in a table's commits: where the batch ended in its source


def end_in(metadata: Mapping[str, str]) -> Offsets | None:
    """Where a batch ended, as its commit has it."""
    found: Offsets | None = json.loads(metadata[END]) if END in metadata else None
    return found


class SharedView(LiveRun):
    """One view over one source. Tasks run its program; `replanned` makes it anew when the source's columns have changed."""

    def __init__(
        self,
        name: str,
        paths: ViewPaths,
        source: str,
        connector: SourceConnector,
        program: Program,
        replanned: Callable[[], Program],
        on_state: Callable[[str, QueryState, str], None],
        retention_s: float,
    ) -> None:
        super().__init__(name, on_state)
        self.paths = paths
        self.source = source
        self.connectors = {source: connector}
        self.starts: dict[str, Offsets] = {}
        self.lock = ViewLock(name, paths)
        self.position: Offsets = {}  # where its table stands
        self.away = Backoff()  # while its storage does not answer
        self.leave: Callable[[SharedView], None] = lambda view: None  # set by whoever runs it
        self.decision: Path | None = None  # where the read that serves it has the source's watermark
        self.retention_s = retention_s
        self.table = ViewTable(paths.table, retention_s)
        self._program = program
        self._replanned = replanned

    # -- starting ------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, *, is_new: bool) -> None:
        """Make the table, or make sure that it is there."""

    def served(self) -> ServedView:
        """What tasks get to know of it."""
        return ServedView(self.name, self._program.to_json(), str(self.paths.table))

    @abstractmethod
    def replan(self) -> None:
        """The source has other columns now."""

    def _check_there(self, *, is_new: bool, exists: bool) -> None:
        if not is_new and not exists:
            raise CheckpointError(
                f"the table of view '{self.name}' is gone, but its position is known",
                remedy=f"DROP MATERIALIZED VIEW {self.name}, then create it again",
            )

    # -- keeping -------------------------------------------------------------------------------------

    @abstractmethod
    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        """Put a batch into the table, once; returns how many rows came too late. Blocks while the table is written."""

    @abstractmethod
    def last_batch(self, query_id: str) -> int | None:
        """The newest batch of a query that the table has."""

    def added(self, at: PartitionOffsets) -> PartitionOffsets:
        """Up to where its table has partitions from these offsets on, by whoever added them. For any thread."""
        return at

    def has_batches(self) -> bool:
        """Whether its table has any of this home. Of a view that groups, the table may be behind what it is made of."""
        return bool(self.table.open().version() > 0) or self.recorded_end() is not None

    @abstractmethod
    def recorded_end(self) -> Offsets | None:
        """Where its newest batch ended, by its table alone: for when the checkpoint is lost."""

    def count(
        self, known: Totals | None, answer: BatchAnswer, late: int, took_ms: int
    ) -> tuple[Account, BatchToCount] | None:
        """What a batch read for this view, and its number; None if it is in the totals already."""
        connector, end = self.connectors[self.source], answer.header.end
        if known is not None and connector.reached(dict(known.offsets), end):
            return None
        number = -1 if known is None else known.batch
        return answer.account_of(self.name), BatchToCount(number + 1, late, took_ms)

    def account_folders(self, source: str) -> Sequence[Path]:
        """Of the reads that serve or served it, and its own, if it had a query of its own before."""
        home = self.paths.root.parent.parent
        reads = (of_source(home, source), of_view(self.paths))
        return (*(each.accounts for each in reads), self.paths.accounts_of(source))

    def count_up_to_here(self, catalog: Catalog) -> None:
        """Count what is in the table, but was not counted: a process ended in between, or it was done without the others."""
        known = next(iter(catalog.totals(view=self.name, source=self.source)), None)
        connector = self.connectors[self.source]
        counted = self.starts[self.source] if known is None else dict(known.offsets)
        if not connector.reached(counted, self.position):
            number = -1 if known is None else known.batch
            recount(catalog, self, number + 1, {self.source: self.position})

    # -- ending --------------------------------------------------------------------------------------

    def fail(self, error: ForebayError) -> None:
        """It is served no more. Its lock is free before anybody hears of it: it may be started again at once."""
        self._let_go()
        self.error = error
        self.set_state(QueryState.FAILED, str(error))

    def stop(self, timeout_s: float = 60.0) -> None:
        """Be served no more, from the next batch on."""
        self.leave(self)
        self.close()
        if self.state not in (QueryState.STOPPED, QueryState.FAILED):
            self.set_state(QueryState.STOPPED, "")
        self._let_go()

    def _let_go(self) -> None:
        """Another process may run it from now on: nothing here writes its tables any more."""
        for table in self.tables():
            table.settle()
        self.lock.release()

    def tables(self) -> list[ViewTable]:
        """All that batches are added to."""
        return [self.table]

    def close(self) -> None:
        """It is served no more: what is still to be done for its readers."""

    def await_report(self, timeout_s: float) -> None:
        """Nothing: its batches are counted before they are done."""

    def recount(self, catalog: Catalog) -> None:
        """Nothing, for the same reason."""


class RowView(SharedView):
    """A view that selects: its table takes the files that tasks have written."""

    def prepare(self, *, is_new: bool) -> None:
        self._check_there(is_new=is_new, exists=self.table.exists())
        if not self.table.exists():
            self.table.create(output_schema(self._program))
        self.table.widen(output_schema(self._program))

    def replan(self) -> None:
        self._program = self._replanned()
        self.table.widen(output_schema(self._program))

    def last_batch(self, query_id: str) -> int | None:
        found: int | None = self.table.open().transaction_version(query_id)
        return found

    def recorded_end(self) -> Offsets | None:
        return end_in(self.table.newest_metadata())

    def keep(self, answer: BatchAnswer, query_id: str, batch: int) -> int:
        files = answer.files.get(self.name, ())
        if self.table.holds(query_id, batch):
            self.table.persist()  # whoever wrote it may have been killed before that
        elif files:
            self.table.add(files, query_id, batch, {END: json.dumps(answer.header.end)})
        return 0
