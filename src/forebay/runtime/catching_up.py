"""Waiting until views have what their sources hold."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path

from forebay.backoff import wait_ms
from forebay.catalog import QueryState
from forebay.connectors.contract import Offsets
from forebay.errors import ForebayError, SourcePausedError, WaitTimeoutError
from forebay.runtime.closing_view import ClosingView
from forebay.runtime.query import RunningQuery
from forebay.runtime.shared_view import SharedView
from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import Cause

log = logging.getLogger("forebay.session")

LiveView = RunningQuery | SharedView
LONGEST_PAUSE_MS = 1_000  # between two questions to brokers that are away: somebody waits for the answer
CLOSE_S = 10.0  # two batches follow the last one with records: one moves the watermark, one closes windows


def wait_caught_up(
    home: Path,
    running: Mapping[str, LiveView],
    deadline: float | None,
    timeout: float | None,
) -> None:
    """Until all that the sources hold now is in the views. `SourcePausedError` where a source is paused before that.

    Brokers that are away are waited for, until the deadline. What does not pass by itself is raised at once.
    """
    targets = {
        (view, name): _end_offsets(query, name, deadline, timeout)
        for view, query in list(running.items())
        for name in query.connectors
    }
    for (view, name), target in targets.items():
        query = running[view]
        connector = query.connectors[name]

        def reached() -> bool:
            position = query.progress.positions.get(name)  # noqa: B023
            # Of a group that is shared: what has gone to others since is not waited for.
            wanted = target if connector.share is None else connector.share.narrowed(target)  # noqa: B023
            if position is not None and connector.reached(position, wanted):  # noqa: B023
                return True
            _check_not_paused(home, name, view)  # noqa: B023
            return False

        if not query.wait_for(reached, deadline):
            query.raise_if_failed()
            raise _not_in_time(query, name, timeout)
    for query in list(running.values()):
        if isinstance(query, ClosingView) or (isinstance(query, RunningQuery) and query.closes_windows):
            _wait_closed(query, min(time.monotonic() + CLOSE_S, math.inf if deadline is None else deadline))


def _end_offsets(query: LiveView, source: str, deadline: float | None, timeout: float | None) -> Offsets:
    """Where the source ends now. A broker that has just come back may refuse to say for a moment."""
    connector, failures = query.connectors[source], 0
    while True:
        try:
            return connector.end_offsets()
        except ForebayError as error:
            if not error.retryable:
                raise
            failures += 1
            if failures == 1:
                log.info("view '%s': waiting for '%s': %s", query.name, source, error.message)
            trouble = error
        until = time.monotonic() + wait_ms(failures, longest_ms=LONGEST_PAUSE_MS) / 1000
        query.wait_for(lambda: False, until if deadline is None else min(until, deadline))
        late = deadline is not None and time.monotonic() >= deadline
        if late or query.state is QueryState.STOPPED:
            raise _not_in_time(query, source, timeout, trouble)


def _not_in_time(
    query: LiveView, source: str, timeout: float | None, trouble: ForebayError | None = None
) -> WaitTimeoutError:
    remedy = "give it more time with --timeout, or see SHOW QUERIES for what holds it up"
    if query.state is QueryState.STOPPED or timeout is None:
        return WaitTimeoutError(f"view '{query.name}' was stopped before it had caught up", remedy=remedy)
    lag = "unknown" if query.progress.lag is None else query.progress.lag
    message = f"view '{query.name}' had not caught up with '{source}' after {timeout:.0f} s (lag {lag})"
    if trouble is not None:
        return WaitTimeoutError(
            f"{message}: {trouble.code}: {trouble.message}", remedy=trouble.remedy or remedy
        )
    if query.state is not QueryState.RUNNING and query.message:
        message += f"; it is {query.state}: {query.message}"
    return WaitTimeoutError(message, remedy=remedy)


def _check_not_paused(home: Path, source: str, view: str) -> None:
    """Whoever reads says that it is paused once the batch in flight is done: what was on its way has arrived then."""
    flow = SourceFlow.of(home, source)
    if flow.paused_ms is not None and any(
        plan.cause is Cause.PAUSED and view in plan.views for plan in flow.plans
    ):
        raise SourcePausedError(
            f"view '{view}' does not catch up: source '{source}' is paused",
            remedy=f"RESUME SOURCE {source}",
        )


def _wait_closed(query: RunningQuery | ClosingView, deadline: float) -> None:
    """Until the windows are closed that the watermark has passed. It may go on meanwhile, with the clock."""
    due: list[float] = []

    def closed() -> bool:
        if not due and (found := query.due()) is not None:
            due.append(found)
        return bool(due) and query.has_closed(due[0])

    query.wait_for(closed, deadline)
