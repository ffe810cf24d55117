"""A home at a moment, in one pass over its catalog: what lists, graphs and samples are made of.

It is kept for half a second, or twenty times as long as it took to make, so that many open pages cost as much as one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.catalog import Catalog, Definition, QueryState, Totals
from forebay.connectors.contract import HealthStatus
from forebay.deadletter.groups import pattern_of
from forebay.runtime.known import SourceFacts
from forebay.runtime.source_flow import SourceFlow, state_of
from forebay.runtime.source_metrics import oldest
from forebay.runtime.states import hint_of, state_of_source
from forebay.runtime.status import view_state
from forebay.web.ground import Ground
from forebay.web.lag_watch import LagWatch

KEPT_S = 0.5
COST = 20.0
WINDOW_S = 10.0  # rates are of the last so many seconds
STEP_S = 1.0


@dataclass(frozen=True)
class ViewNow:
    """A view and what is known of it without its table."""

    definition: Definition
    state: QueryState
    message: str
    totals: Sequence[Totals]  # one a source
    rate: float | None
    batch_ms: int | None  # how long its newest batch took

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.definition.detail.get("sources", ()))

    @property
    def records(self) -> int:
        return sum(each.records for each in self.totals)

    @property
    def rejected(self) -> int:
        return sum(sum(each.rejected.values()) for each in self.totals)

    @property
    def hint(self) -> str:
        return hint_of(self.state, view=self.definition.name, source=next(iter(self.sources), "…"))


@dataclass(frozen=True)
class Rates:
    """A second, over the last seconds; None before there are two looks."""

    records: float | None = None
    bytes: float | None = None
    errors: float | None = None


@dataclass(frozen=True)
class SourceNow:
    """A source likewise. `totals` is of the view that has met most."""

    definition: Definition
    facts: SourceFacts
    on_error: str
    views: Sequence[ViewNow]
    totals: Totals | None
    flow: SourceFlow
    health: HealthStatus | None
    rates: Rates
    commit_error: str | None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def topic(self) -> str | None:
        options = self.facts.options
        return options.get("topic") or options.get("topics") or options.get("topic.pattern")

    @property
    def state(self) -> QueryState:
        return state_of_source(view.state for view in self.views)

    @property
    def worst(self) -> ViewNow | None:
        """The view that the source has its state from."""
        return next((view for view in self.views if view.state is self.state), None)

    @property
    def lag(self) -> int | None:
        known = self.health.partitions if self.health is not None and self.health.healthy else ()
        return sum(each.lag for each in known) if known else None

    @property
    def lag_s(self) -> float | None:
        known = self.health.partitions if self.health is not None and self.health.healthy else ()
        return oldest(tuple(known))

    @property
    def errors(self) -> int:
        return sum(self.totals.rejected.values()) if self.totals else 0


@dataclass(frozen=True)
class Snapshot:
    at_ms: int
    sources: Mapping[str, SourceNow]
    views: Mapping[str, ViewNow]


@dataclass
class _Counts:
    """What was counted at some moments of the last seconds."""

    looks: deque[tuple[float, int, int, int]] = field(default_factory=deque)

    def see(self, at: float, records: int, size: int, errors: int) -> Rates:
        if not self.looks or at - self.looks[-1][0] >= STEP_S:
            self.looks.append((at, records, size, errors))
        while len(self.looks) > 2 and at - self.looks[1][0] > WINDOW_S:
            self.looks.popleft()
        first = self.looks[0]
        past = at - first[0]
        if past < STEP_S or records < first[1]:  # or it was made anew
            if records < first[1]:
                self.looks.clear()
            return Rates()
        return Rates(
            (records - first[1]) / past, max(0, size - first[2]) / past, max(0, errors - first[3]) / past
        )


class HomeSnapshots:
    """Makes them when they are asked for. Any thread may ask."""

    def __init__(self, ground: Ground, lag: LagWatch) -> None:
        self._ground = ground
        self._lag = lag
        self._lock = threading.Lock()
        self._last: Snapshot | None = None
        self._until = 0.0
        self._counts: dict[tuple[str, str], _Counts] = {}

    def now(self, *, fresh: bool = False) -> Snapshot:
        """`fresh`: after a change, which must be seen."""
        with self._lock:
            began = time.monotonic()
            if fresh or self._last is None or began >= self._until:
                self._last = self._made(began)
                took = time.monotonic() - began
                self._until = began + max(KEPT_S, COST * took)
            return self._last

    def batch_ms(self, view: str) -> int | None:
        """How long the newest batch of a view took. One that was counted after a crash has no duration."""
        found = self._ground.catalog.batches(view, 1)
        return (found[0][4] or None) if found else None

    def _made(self, at: float) -> Snapshot:
        catalog = self._ground.catalog
        totals: dict[str, list[Totals]] = {}
        for each in catalog.totals():
            totals.setdefault(each.view, []).append(each)
        flows = {each.name: SourceFlow.of(self._ground.path, each.name) for each in catalog.all("source")}
        views = {
            each.name: self._view(catalog, each, totals.get(each.name, []), flows, at)
            for each in catalog.all("view")
        }
        health = self._lag.last()
        commits = self._ground.session.commit_errors() if self._ground.session is not None else {}
        sources: dict[str, SourceNow] = {}
        for definition in catalog.all("source"):
            over = [view for view in views.values() if definition.name in view.sources]
            found = max(
                (each for view in over for each in view.totals if each.source == definition.name),
                key=lambda each: each.records,
                default=None,
            )
            failed = commits.get(definition.name)
            facts = SourceFacts.from_json(
                definition.detail.get("facts"), definition.sql
            ) or self._ground.sources.facts(definition.name)
            sources[definition.name] = SourceNow(
                definition,
                facts,
                facts.on_error.strategy if facts.on_error else "skip",
                over,
                found,
                flows[definition.name],
                health.get(definition.name),
                self._rates("source", definition.name, found, at),
                failed.message if failed else None,
            )
        return Snapshot(int(time.time() * 1000), sources, views)

    def _view(
        self,
        catalog: Catalog,
        definition: Definition,
        totals: list[Totals],
        flows: Mapping[str, SourceFlow],
        at: float,
    ) -> ViewNow:
        state, message = view_state(catalog, definition.name)
        if state is QueryState.RUNNING:
            plans = [
                (source, plan)
                for source in definition.detail.get("sources", ())
                if source in flows
                for plan in flows[source].plans
                if definition.name in plan.views
            ]
            state, hint = state_of(plans)
            message = message or hint
        if self._ground.hide_payloads:
            message = pattern_of(message)  # a query may have failed at a record, and quote it
        found = max(totals, key=lambda each: each.records, default=None)
        return ViewNow(
            definition,
            state,
            message,
            totals,
            self._rates("view", definition.name, found, at).records,
            self.batch_ms(definition.name),
        )

    def _rates(self, kind: str, name: str, totals: Totals | None, at: float) -> Rates:
        counts = self._counts.setdefault((kind, name), _Counts())
        if totals is None:
            return Rates()
        return counts.see(at, totals.records, totals.bytes, sum(totals.rejected.values()))
