"""PAUSE SOURCE and RESUME SOURCE; and what the reads of a source say of themselves, for those who look.

Whoever looks may be another process than the one that reads: what there is to know is in the source's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.catalog import Catalog, QueryState
from forebay.deadletter.policy import SourceFolder
from forebay.errors import UnsupportedSqlError
from forebay.runtime.known import unknown
from forebay.runtime.times import time_text
from forebay.source.batch_size import Cause
from forebay.source.budget import Budget, InFlight
from forebay.source.flow_folder import ALL, FlowFolder, Plan

MEGABYTE = 1 << 20


def flow_folder(home: Path, source: str) -> FlowFolder:
    return FlowFolder.of(SourceFolder.of(home, source).root)


def pause(home: Path, catalog: Catalog, source: str) -> str:
    """PAUSE SOURCE: no read of it begins another batch, in whichever process. Returns what happened."""
    _check(catalog, source, "PAUSE")
    if flow_folder(home, source).pause():
        return f"source {source} paused: nothing more is fetched; RESUME SOURCE {source} goes on"
    return f"source {source} is paused already; RESUME SOURCE {source} goes on"


def resume(home: Path, catalog: Catalog, source: str) -> str:
    """RESUME SOURCE: the reads go on where they stood."""
    _check(catalog, source, "RESUME")
    if flow_folder(home, source).resume():
        return f"source {source} resumed"
    return f"source {source} is not paused"


def _check(catalog: Catalog, source: str, verb: str) -> None:
    known = catalog.get(source)
    if known is None:
        raise unknown("source", source, [each.name for each in catalog.all("source")])
    if known.kind != "source":
        one, other = ("STOP", "PAUSE") if verb == "PAUSE" else ("START", "RESUME")
        of = known.detail.get("sources", ("its source",))[0]
        raise UnsupportedSqlError(
            f"'{source}' is a {known.kind}, and {verb} is for sources",
            remedy=f"{one} VIEW {source} for this view alone, {other} SOURCE {of} for all that read {of}",
        )


@dataclass(frozen=True)
class SourceFlow:
    """How a source's reads fare."""

    source: str
    paused_ms: int | None
    plans: Sequence[Plan]

    @staticmethod
    def of(home: Path, source: str) -> SourceFlow:
        folder = flow_folder(home, source)
        return SourceFlow(source, folder.paused_ms(), folder.plans())

    @property
    def in_flight(self) -> InFlight:
        return InFlight.sum(plan.in_flight for plan in self.plans)

    def for_view(self, view: str) -> str:
        """How far a view is behind and how long that lasts, or what it waits for; nothing if nobody reads for it."""
        if self.paused_ms is not None:
            return self._paused()
        return next((_words(plan) for plan in self.plans if view in plan.views), "")

    def __str__(self) -> str:
        """The source in a line: paused, or how its slowest read fares."""
        if self.paused_ms is not None:
            return self._paused()
        slowest = max(self.plans, key=lambda plan: (plan.waits, plan.behind or 0), default=None)
        return "" if slowest is None else _words(slowest)

    def _paused(self) -> str:
        assert self.paused_ms is not None
        return f"paused since {time_text(self.paused_ms)}; RESUME SOURCE {self.source} goes on"

    def lines(self, budget: Budget) -> list[str]:
        """For DESCRIBE EXTENDED: each decision with its cause."""
        lines = [] if self.paused_ms is None else [f"  {self._paused()}"]
        held = self.in_flight
        lines.append(
            f"  in flight: {held.records:,} records, {held.bytes / MEGABYTE:.1f} MB "
            f"({budget.fill(held):.0%} of the budget; fetching stops at {budget.high:.0%}, goes on below {budget.low:.0%})"
        )
        for plan in self.plans:
            who = "all views" if plan.read == ALL else f"view {', '.join(plan.views)}"
            lines.append(f"  read for {who}: {plan}")
            if plan.catch_up is not None:
                lines.append(f"    {plan.catch_up}")
        return lines


def _words(plan: Plan) -> str:
    return plan.why if plan.waits else "" if plan.catch_up is None else str(plan.catch_up)


def state_of(plans: Sequence[tuple[str, Plan]]) -> tuple[QueryState, str]:
    """What a query's state is by the plans of its reads, each with its source, and a hint."""
    for source, plan in plans:
        if plan.cause is Cause.PAUSED:
            return QueryState.PAUSED, f"source {source} is paused; RESUME SOURCE {source} goes on"
    for _, plan in plans:
        if plan.cause is Cause.BACKPRESSURE:
            return QueryState.BACKPRESSURED, plan.why
    return QueryState.RUNNING, ""
