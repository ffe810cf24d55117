"""How a session's sources fare: what their brokers say, what their views are at, what could not be committed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from forebay.catalog import Catalog, EventKind
from forebay.connectors.contract import HealthStatus
from forebay.errors import ForebayError
from forebay.runtime.health import HealthWatch, asked
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.source_metrics import SourceMetrics, own_counts, source_metrics
from forebay.runtime.source_watermarks import decisions, slowest
from forebay.runtime.sources import Sources
from forebay.runtime.stalls import StallWatch
from forebay.runtime.states import BAD, hint_of, state_of_source
from forebay.runtime.status import view_state, views_over
from forebay.runtime.views import Views
from forebay.source.watermarks import Decision


class SessionHealth:
    """Of one session. It begins to watch when it is first asked to."""

    def __init__(self, catalog: Catalog, sources: Sources, views: Views) -> None:
        self._catalog = catalog
        self._sources = sources
        self._views = views
        self._lock = threading.Lock()
        self._watch: HealthWatch | None = None
        self._stalls: StallWatch | None = None
        self._commit_errors: dict[str, ForebayError] = {}

    def watch(self) -> HealthWatch:
        """From now on the brokers are asked every second how they are."""
        with self._lock:
            if self._watch is None:
                self._watch = HealthWatch(self._sources.connected, self._on_health)
            return self._watch

    def watch_stalls(self) -> None:
        """From now on a query that does not get on is noticed."""
        with self._lock:
            if self._stalls is None:
                self._stalls = StallWatch(self._views.runs)

    def close(self) -> None:
        for each in (self._stalls, self._watch):
            if each is not None:
                each.close()

    # -- what happened -------------------------------------------------------------------------------

    def on_commit(self, source: str, error: ForebayError | None) -> None:
        """The group's offsets were committed, or were not. Of several failures in a row the first is an event."""
        failed = self._commit_errors.pop(source, None)
        if error is not None:
            self._commit_errors[source] = error
            if failed is None:
                self._catalog.note(source, EventKind.COMMIT_FAILED, error.message)
        elif failed is not None:
            self._catalog.note(source, EventKind.COMMITTED_AGAIN, "")

    def forget(self, source: str) -> None:
        """It was dropped."""
        self._commit_errors.pop(source, None)

    def _on_health(self, source: str, health: HealthStatus) -> None:
        kind = EventKind.REACHABLE if health.healthy else EventKind.UNREACHABLE
        self._catalog.note(source, kind, health.message)

    # -- how it is -----------------------------------------------------------------------------------

    def commit_errors(self) -> dict[str, ForebayError]:
        """Sources whose group offsets cannot be committed at the moment, and why."""
        return dict(self._commit_errors)

    def outages(self) -> dict[str, str]:
        """By source: what keeps it from being read, or its offsets from being committed, right now."""
        found = {source: error.message for source, error in self.commit_errors().items()}
        return found | {source: each.message for source, each in self.known().items() if not each.healthy}

    def known(self) -> Mapping[str, HealthStatus]:
        """What is known of the brokers without asking them."""
        return self._watch.last() if self._watch is not None else {}

    def of_brokers(self, source: str) -> HealthStatus:
        """The last word on a source's brokers where they are watched, else what they say now. May block."""
        found = self.known().get(source)
        if found is not None:
            return found
        try:
            return asked(self._sources.connector(source))
        except ForebayError as error:  # it could not be connected at all
            return HealthStatus(False, error.message)

    def check(self, source: str) -> HealthStatus:
        """Brokers and views together, as of now. Blocks while the brokers are asked."""
        try:
            health = asked(self._sources.connector(source))
        except ForebayError as error:
            health = HealthStatus(False, error.message)
        views = {view: view_state(self._catalog, view) for view in views_over(self._catalog, source)}
        if not views:
            return health
        state = state_of_source(each for each, _ in views.values())
        health = replace(health, details={**health.details, "state": str(state)})
        worst, message = next((view, why) for view, (each, why) in views.items() if each is state)
        if hint := hint_of(state, view=worst, source=source):
            health = replace(health, details={**health.details, "hint": hint})
        if state in BAD and health.healthy:
            return replace(health, healthy=False, message=f"view '{worst}' is {state}: {message}")
        return health

    def own(self, source: str) -> Mapping[str, float]:
        return own_counts(self._sources.connected().get(source))

    def metrics(self) -> list[SourceMetrics]:
        return [
            source_metrics(
                self._catalog,
                name,
                self.known().get(name),
                self.own(name),
                paused=SourceFlow.of(self._views.home, name).paused_ms is not None,
                watermark=self.watermark(name),
            )
            for name in self._sources.names()
        ]

    def watermark(self, source: str) -> Decision | None:
        """Of the read that is furthest behind in event time."""
        views = views_over(self._catalog, source)
        return slowest(decisions(self._views.home, source, views).values())
