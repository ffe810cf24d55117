"""How sources and views fare, as the catalog knows it: what SHOW lists, also where nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from forebay.catalog import Catalog, QueryState
from forebay.connectors.contract import PartitionLag
from forebay.runtime.known import KnownSources
from forebay.runtime.results import Result
from forebay.runtime.source_flow import SourceFlow
from forebay.runtime.states import ALIVE, hint_of, state_of_source
from forebay.runtime.times import time_text

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class SourceStatus:
    """A source as `Session.sources()` gives it."""

    name: str
    connector: str
    format: str | None
    topic: str | None
    group: str | None
    columns: tuple[str, ...]
    views: tuple[str, ...]
    on_error: str = "skip"
    errors_total: int = 0
    dlq_total: int = 0
    rate_limited: int = 0
    # The view that is behind the group's offsets, which stand still until it is not.
    waits_for: str | None = None
    case_mismatches: int = 0  # records with a NULL for a field that differs from its column only in case
    flow: str = ""  # paused, or how far its slowest read is behind and how long that lasts
    state: str = "created"  # the worst of its views'
    lag: int | None = None  # records that its group has not committed, where the brokers are watched
    lag_s: float | None = None  # how old the oldest of them is

    def __repr__(self) -> str:
        topic = f" topic {self.topic}" if self.topic else ""
        group = f", group {self.group}" if self.group else ""
        views = f", views {', '.join(self.views)}" if self.views else ", no views"
        rejected = f", {self.errors_total:,} rejected" if self.errors_total else ""
        return (
            f"<source {self.name}: {self.connector}{topic}{group}, {len(self.columns)} columns{views}, "
            f"on error {self.on_error}{rejected}{f', {self.flow}' if self.flow else ''}>"
        )


@dataclass(frozen=True, repr=False)
class QueryStatus:
    """A view's query as `Session.queries()` gives it. `records` counts the rejected ones too."""

    view: str
    state: str
    batch: int
    records: int
    rejected: int
    late: int
    records_per_second: float
    lag: int | None
    batch_ms: int
    message: str
    catch_up: str = ""  # how far it is behind and how long that lasts, or what it waits for
    hint: str = ""  # what to do, in a state that is not a good one

    def __repr__(self) -> str:
        rejected = f", {self.rejected:,} rejected" if self.rejected else ""
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        message = f": {self.message.splitlines()[0]}" if self.message else ""
        return f"<query {self.view}: {self.state}, {self.records:,} records{rejected}, lag {lag}{message}>"


@dataclass(frozen=True, repr=False)
class SourceLag:
    """How far a source's group is behind in one partition, as the broker sees it."""

    source: str
    group: str | None
    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int
    lag_s: float | None = None  # how old the oldest unread record is; None if that is not known
    catch_up: str = ""  # of the source's slowest read, in all partitions

    @classmethod
    def of(cls, source: str, group: str | None, row: PartitionLag, catch_up: str) -> SourceLag:
        """A connector's row, with whose it is."""
        return cls(
            source, group, row.topic, row.partition, row.committed, row.end, row.lag, row.lag_s, catch_up
        )

    def __repr__(self) -> str:
        committed = "none" if self.committed is None else f"{self.committed:,}"
        age = "" if self.lag_s is None else f", {self.lag_s:,.1f} s"
        return (
            f"<lag of source {self.source} in {self.topic}/{self.partition}: {self.lag:,}{age} "
            f"(committed {committed}, end {self.end:,})>"
        )


class Listing(list[T], Generic[T]):
    """A list that a prompt and a notebook show as a table."""

    def __init__(self, kind: type[T], items: Iterable[T]) -> None:
        super().__init__(items)
        self._kind = kind

    def __repr__(self) -> str:
        return repr(table_of(self._kind, self))

    def _repr_html_(self) -> str:
        return table_of(self._kind, self)._repr_html_()


def source_statuses(home: Path, catalog: Catalog, sources: KnownSources) -> list[SourceStatus]:
    found = []
    errors = {each.source_name: each for each in catalog.source_errors()}
    for name in sources.names():
        facts, known = sources.facts(name), errors.get(name)
        text = facts.options
        found.append(
            SourceStatus(
                name,
                facts.connector,
                text.get("format", "json") if facts.connector == "kafka" else None,
                text.get("topic") or text.get("topics") or text.get("topic.pattern"),
                text.get("group.id"),
                facts.columns,
                tuple(views_over(catalog, name)),
                sources.policy(name).strategy,
                known.errors_total if known else 0,
                known.dlq_total if known else 0,
                known.rate_limited if known else 0,
                case_mismatches=max(
                    (each.case_mismatches for each in catalog.totals(source=name)), default=0
                ),
                flow=str(SourceFlow.of(home, name)),
                state=str(
                    state_of_source(view_state(catalog, view)[0] for view in views_over(catalog, name))
                ),
            )
        )
    return found


def views_over(catalog: Catalog, source: str) -> list[str]:
    """The views that read from a source."""
    return [view.name for view in catalog.all("view") if source in view.detail.get("sources", ())]


def view_state(catalog: Catalog, view: str) -> tuple[QueryState, str]:
    """The state of a view's query and why it is in it, whoever runs it."""
    import psutil

    state, message, pid = catalog.state(view) or (QueryState.STOPPED, "", 0)
    if state in ALIVE and not psutil.pid_exists(pid):
        return QueryState.STOPPED, f"process {pid} ended without stopping it"
    return state, message


def query_status(home: Path, catalog: Catalog, view: str) -> QueryStatus:
    """A view's query as the catalog knows it; of one that runs in this process more is known."""
    totals = catalog.totals(view=view)
    state, message = view_state(catalog, view)
    recent = catalog.batches(view, 1)
    return QueryStatus(
        view,
        str(state),
        max((item.batch for item in totals), default=-1),
        sum(item.records for item in totals),
        sum(sum(item.rejected.values()) for item in totals),
        sum(item.late for item in totals),
        0.0,
        None,
        recent[0][4] if recent else 0,
        message,
        _catch_up(home, catalog, view),
        hint_of(state, view=view),
    )


def _catch_up(home: Path, catalog: Catalog, view: str) -> str:
    known = catalog.get(view)
    sources = known.detail.get("sources", ()) if known is not None else ()
    found = {source: SourceFlow.of(home, source).for_view(view) for source in sources}
    words = {source: text for source, text in found.items() if text}
    return "; ".join(text if len(found) == 1 else f"{source}: {text}" for source, text in words.items())


def shown(
    kind: str,
    catalog: Catalog,
    sources: Callable[[], Sequence[SourceStatus]],
    queries: Callable[[], Sequence[QueryStatus]],
    lag: Callable[[], Sequence[SourceLag]],
) -> Result:
    """SHOW SOURCES, QUERIES, VIEWS, SINKS or LAG, which asks the brokers."""
    if kind == "lag":
        return table_of(SourceLag, lag())
    if kind == "sources":
        return table_of(SourceStatus, sources())
    if kind == "queries":
        return table_of(QueryStatus, queries())
    if kind == "views":
        rows = []
        for view in catalog.all("view"):
            detail = view.detail
            rows.append(
                (view.name, ", ".join(detail["sources"]), detail["emit"], ", ".join(detail["keys"]),
                 time_text(view.created_ms))
            )  # fmt: skip
        return Result.of(("name", "sources", "emit", "keys", "created"), rows)
    return Result.of(("name", "view", "target"), [])


def table_of(kind: type[Any], items: Sequence[Any]) -> Result:
    """Dataclasses as a table, a field a column."""
    names = list(kind.__dataclass_fields__)
    rows = [
        tuple(", ".join(v) if isinstance(v := getattr(item, name), tuple) else v for name in names)
        for item in items
    ]
    return Result.of(names, rows)
