"""The pipeline as a graph, what is wrong with it, and what everybody waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from forebay.catalog import QueryState
from forebay.runtime.states import BAD, hint_of
from forebay.source.batch_size import Cause
from forebay.web.ground import Ground
from forebay.web.model import Edge, Node, Overview, Problem
from forebay.web.shown import inert
from forebay.web.snapshot import Snapshot, SourceNow, ViewNow

BEHIND_S = 10.0  # a source whose oldest unread record is older holds its views up
ORDER = {"error": 0, "warning": 1, "info": 2}
MOST_PROBLEMS = 100


def overview(
    ground: Ground, snapshot: Snapshot, readers: Mapping[str, int], more: Iterable[Problem] = ()
) -> Overview:
    """`readers` counts who follows each view, as far as this process knows; `more` is what is wrong besides."""
    narrow = dict(_bottlenecks(snapshot))
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for source in snapshot.sources.values():
        node = _source_node(source, narrow)
        nodes[node.id] = node
        for topic in _topics(source):
            nodes.setdefault(topic.id, topic)
            edges.append(Edge(topic.id, node.id))
        edges += [Edge(node.id, f"view:{view.definition.name}") for view in source.views]
    for view in snapshot.views.values():
        node = _view_node(view, snapshot, narrow)
        nodes[node.id] = node
        if count := readers.get(view.definition.name):
            reader = Node(
                f"reader:{view.definition.name}", "reader", f"{count:,} following",
                detail="SUBSCRIBE and tails in this process", link=node.link,
            )  # fmt: skip
            nodes[reader.id] = reader
            edges.append(Edge(node.id, reader.id))
    found = sorted((*_problems(snapshot), *more), key=lambda each: ORDER[each.severity])
    lags = [each.lag for each in snapshot.sources.values() if each.lag is not None]
    ages = [each.lag_s for each in snapshot.sources.values() if each.lag_s is not None]
    rates = [each.rates.records for each in snapshot.sources.values() if each.rates.records is not None]
    return Overview(
        list(nodes.values()),
        edges,
        found[:MOST_PROBLEMS],
        snapshot.at_ms,
        ground.path.name if ground.path.name != ".forebay" else ground.path.parent.name,
        sum(rates) if rates else None,
        sum(lags) if lags else None,
        max(ages) if ages else None,
        sum(each.totals.dlq for each in snapshot.sources.values() if each.totals is not None),
        ground.session is not None,
    )


def link(kind: str, name: str) -> str:
    """The page about a source, a view or a topic."""
    return f"/{kind}?name={quote(name, safe='')}"


def _topics(source: SourceNow) -> Iterator[Node]:
    if source.topic is None:
        yield Node(f"topic:{source.facts.connector}", "topic", source.facts.connector, detail="a connector")
        return
    if "topic.pattern" in source.facts.options:
        clean = inert(source.topic)
        yield Node(f"topic:{clean}", "topic", clean, detail="all topics of this pattern", link="/topics")
        return
    for name in source.topic.split(","):
        clean = inert(name.strip())
        yield Node(f"topic:{clean}", "topic", clean, link=link("topic", name.strip()))


def _source_node(source: SourceNow, narrow: Mapping[str, str]) -> Node:
    place = f"source:{source.name}"
    worst = source.worst
    paused = source.flow.paused_ms is not None
    return Node(
        place,
        "source",
        source.name,
        "paused" if paused else str(source.state),
        source.rates.records,
        source.lag,
        source.lag_s,
        place in narrow,
        narrow.get(place, inert(worst.message) if worst is not None else ""),
        str(source.flow),
        link("source", source.name),
    )


def _view_node(view: ViewNow, snapshot: Snapshot, narrow: Mapping[str, str]) -> Node:
    place = f"view:{view.definition.name}"
    behind = [
        plan.behind
        for source in view.sources
        if source in snapshot.sources
        for plan in snapshot.sources[source].flow.plans
        if view.definition.name in plan.views and plan.behind is not None
    ]
    return Node(
        place,
        "view",
        view.definition.name,
        str(view.state),
        view.rate,
        sum(behind) if behind else None,
        None,
        place in narrow,
        narrow.get(place, inert(view.message)),
        str(view.definition.detail.get("emit", "")),
        link("view", view.definition.name),
    )


def _bottlenecks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Of each source that is behind: the view that does not get on, the tables that are slow, or the reading itself."""
    for source in snapshot.sources.values():
        if source.flow.paused_ms is not None:
            continue
        stuck = next((view for view in source.views if view.state in BAD), None)
        if stuck is not None:
            yield f"view:{stuck.definition.name}", f"it is {stuck.state}: {inert(stuck.message)}"
            continue
        # A table that the read does not wait for any more: what it has not taken fills the budget of all.
        aside = max(
            (plan for plan in source.flow.plans if plan.aside), key=lambda plan: plan.bytes, default=None
        )
        held = next((plan for plan in source.flow.plans if plan.cause is Cause.BACKPRESSURE), None)
        if aside is not None and aside.views:
            yield f"view:{aside.views[0]}", f"its table is slower than the topic: {inert(aside.why)}"
        elif held is not None and held.views:
            slow = max(held.views, key=lambda name: _behind(snapshot, name))
            yield f"view:{slow}", f"its table is slower than the topic: {inert(held.why)}"
        elif source.lag and source.lag_s is not None and source.lag_s >= BEHIND_S:
            yield f"source:{source.name}", f"its oldest unread record is {source.lag_s:,.0f} s old"


def _behind(snapshot: Snapshot, view: str) -> int:
    known = snapshot.views.get(view)
    return -known.records if known is not None else 0


def _problems(snapshot: Snapshot) -> Iterator[Problem]:
    for view in snapshot.views.values():
        yield from _of_view(view)
    for source in snapshot.sources.values():
        yield from _of_source(source)


def _of_view(view: ViewNow) -> Iterator[Problem]:
    name = view.definition.name
    if view.state in BAD:
        yield Problem(
            "warning" if view.state is QueryState.RETRYING else "error",
            f"view {name} is {view.state}",
            inert(view.message) or "its query does not get on",
            view.hint,
            link("view", name),
            next(iter(view.sources), None),
            name,
        )
    late = sum(each.late for each in view.totals)
    if late:
        yield Problem(
            "info", f"{late:,} rows were late for view {name}", "they came after their window was closed",
            "allow lateness (ALLOW LATENESS), keep them (LATE DATA TO …), or raise the watermark's delay",
            link("view", name), next(iter(view.sources), None), name,
        )  # fmt: skip


def _of_source(source: SourceNow) -> Iterator[Problem]:
    name, totals = source.name, source.totals
    place = link("source", name)
    if source.health is not None and not source.health.healthy:
        yield Problem(
            "error", f"source {name} cannot be looked at", inert(source.health.message),
            "look whether its brokers run and can be reached: forebay doctor", place, name,
        )  # fmt: skip
    if source.commit_error is not None:
        yield Problem(
            "error", f"offsets of source {name} are not committed", inert(source.commit_error),
            "the views go on, and it is tried again; look at the group and its ACLs", place, name,
        )  # fmt: skip
    if source.flow.paused_ms is not None:
        yield Problem(
            "info", f"source {name} is paused", str(source.flow),
            hint_of(QueryState.PAUSED, source=name), place, name,
        )  # fmt: skip
    elif source.state is QueryState.BACKPRESSURED:
        yield Problem(
            "warning", f"source {name} is held back", str(source.flow),
            hint_of(QueryState.BACKPRESSURED, source=name), place, name,
        )  # fmt: skip
    elif any(
        plan.catch_up is not None and plan.catch_up.seconds == float("inf") for plan in source.flow.plans
    ):
        yield Problem(
            "warning", f"source {name} falls behind", str(source.flow),
            "more arrives than is read: give Spark more cores, or raise 'max.records.per.batch'", place, name,
        )  # fmt: skip
    if totals is None:
        return
    if totals.dlq:
        yield Problem(
            "warning", f"{totals.dlq:,} records of source {name} became dead letters",
            inert(_kinds(totals.rejected)), "look at them, repair and replay them, or discard them",
            f"/letters?owner={quote(name, safe='')}", name,
        )  # fmt: skip
    elif source.errors:
        yield Problem(
            "warning", f"{source.errors:,} records of source {name} did not decode, and are in no view",
            inert(_kinds(totals.rejected)), "keep the next ones as dead letters: change ON ERROR to dead_letter", place, name,
        )  # fmt: skip
    if totals.rate_limited:
        yield Problem(
            "warning", f"{totals.rate_limited:,} bad records of source {name} have no letter",
            "max_errors_per_second kept them out", f"RECOVER DEAD LETTERS FROM {name} writes them, as long as the topic has them",
            f"/letters?owner={quote(name, safe='')}", name,
        )  # fmt: skip
    if totals.lost_records:
        yield Problem(
            "error", f"{totals.lost_records:,} offsets of source {name} were gone before they were read",
            ", ".join(totals.lost[:3]), "raise the topic's retention; what is gone cannot be read any more", place, name,
        )  # fmt: skip
    if totals.case_mismatches:
        yield Problem(
            "info", f"{totals.case_mismatches:,} records of source {name} have a NULL by upper and lower case",
            "a field differs from its column only in case", "name the column as the field is, or read it by its own name",
            place, name,
        )  # fmt: skip


def _kinds(rejected: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(rejected.items(), key=lambda each: -each[1])
    )
