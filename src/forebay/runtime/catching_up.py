"""Waiting until views have what their sources hold."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from forebay.errors import SourcePausedError, WaitTimeoutError
from forebay.runtime.closing_view import ClosingView
from forebay.runtime.query import RunningQuery
from forebay.runtime.shared_view import SharedView
from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import Cause

CLOSE_S = 10.0  # two batches follow the last one with records: one moves the watermark, one closes windows


def wait_caught_up(
    home: Path,
    running: Mapping[str, RunningQuery | SharedView],
    deadline: float | None,
    timeout: float | None,
) -> None:
    """Until all that the sources hold now is in the views. `SourcePausedError` where a source is paused before that."""
    targets = {
        (view, name): connector.end_offsets()
        for view, query in list(running.items())
        for name, connector in query.connectors.items()
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
            raise WaitTimeoutError(
                f"view '{view}' had not caught up with '{name}' after {timeout:.0f} s (lag {'unknown' if query.progress.lag is None else query.progress.lag})"
                if timeout is not None
                else f"view '{view}' was stopped before it had caught up",
                remedy="give it more time with --timeout, or see SHOW QUERIES for what holds it up",
            )
    for query in list(running.values()):
        if isinstance(query, ClosingView) or (isinstance(query, RunningQuery) and query.closes_windows):
            _wait_closed(query, min(time.monotonic() + CLOSE_S, math.inf if deadline is None else deadline))


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
