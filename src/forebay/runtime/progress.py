"""Hears Spark's events and hands each to the query it is about; counts; has the group's offsets committed.

Spark posts a progress event after the batch's entry in the commit log exists, which makes it the right
moment to tell the consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from forebay.catalog import Catalog
from forebay.connectors.contract import Offsets
from forebay.runtime.accounts import BatchTold, count
from forebay.runtime.query import RunningQuery, offsets_of

log = logging.getLogger("forebay.progress")


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """One for a session. `queries` is the session's own dictionary, by view name."""

    def __init__(
        self,
        queries: Mapping[str, RunningQuery],
        catalog: Catalog,
        on_checkpoint: Callable[[str, int, Offsets], None],
        parallelism: int,
    ) -> None:
        self._queries = queries
        self._catalog = catalog
        self._on_checkpoint = on_checkpoint
        self._parallelism = parallelism
        self._runs: dict[str, RunningQuery] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Spark waits for this one, so the query of that name is the one that is being started."""
        query = self._queries.get(event.name)
        if query is not None:
            self._runs[str(event.runId)] = query

    def _query(self, run: str) -> RunningQuery | None:
        """The query that a run is of. Events come late: by then another view may have its name."""
        query = self._runs.get(run)
        return query if query is not None and self._queries.get(query.name) is query else None

    def onQueryProgress(self, event: Any) -> None:
        query = self._query(str(event.progress.runId))
        if query is None:
            return
        try:
            checkpointed, records = self._record(query, event.progress)
            # Whoever waits for the query to get here, and then for the commit, must find that one waiting.
            with query.changed:
                query.on_progress(event.progress, records)
                for source, offsets in checkpointed.items():
                    self._on_checkpoint(source, event.progress.batchId, offsets)
        except Exception:
            # An exception here would end in the JVM's log, where nobody looks.
            log.exception("the progress of view '%s' could not be recorded", query.name)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        query = self._query(str(event.runId))
        self._runs.pop(str(event.runId), None)
        if query is not None:
            query.on_terminated(event.exception)

    def _record(self, query: RunningQuery, progress: Any) -> tuple[dict[str, Offsets], int]:
        """Count the batch; returns the sources that it moved, and to where, and how many records it read."""
        moved: dict[str, Offsets] = {}
        records = 0
        for source in progress.sources:
            end = offsets_of(source.endOffset)
            if end is None or source.startOffset == source.endOffset:
                continue
            name = end["source"]
            start = offsets_of(source.startOffset) or query.progress.positions[name]
            # Rows that came too late are known for the whole query, so they are put down to one source only.
            late = 0 if moved else sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
            told = BatchTold(progress.batchId, late, progress.durationMs.get("triggerExecution", 0))
            records += count(self._catalog, query, name, (start, end), told, self._parallelism)
            moved[name] = end
        return moved, records
