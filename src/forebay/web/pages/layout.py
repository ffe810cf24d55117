"""Where the boxes of the pipeline's graph go: columns, what stands first in them, and what is left out of a large one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from forebay.web.model import Edge, Node, Overview
from forebay.web.pages import words

SHOWN: Final = 10  # boxes of a column: more of them is a list, and there is a page for that
_COLUMNS: Final = (
    ("topic", "Topics", "/topics", "No topic is read yet."),
    ("source", "Sources", "/sources", "No source yet: CREATE SOURCE makes one."),
    ("view", "Views", "/views", "No view yet: CREATE MATERIALIZED VIEW makes one."),
    ("reader", "Readers", "", "Nobody reads these views now."),
)
_BAD_FIRST = {"bad": 0, "warn": 1, "hold": 2}


def columns(overview: Overview) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The columns of `graph.js`, and the lines between their boxes."""
    shown = _chosen(overview.nodes, overview.edges)
    made = []
    for kind, title, link, none in _COLUMNS:
        nodes = [node for node in shown if node.kind == kind]
        left = sum(node.kind == kind for node in overview.nodes) - len(nodes)
        made.append({
            "title": title, "link": link, "empty": none, "more": f"and {left:,} more" if left else "",
            "nodes": [_box(node) for node in nodes],
        })  # fmt: skip
    here = {node.id: node for node in shown}
    edges = [
        {"start": edge.start, "end": edge.end, "tone": _line(here[edge.start], here[edge.end])}
        for edge in overview.edges
        if edge.start in here and edge.end in here
    ]
    return made, edges


def _chosen(nodes: Sequence[Node], edges: Iterable[Edge]) -> list[Node]:
    """What is wrong or slow first, then what is busy; of the others, those that belong to what is shown."""
    sources = sorted((node for node in nodes if node.kind == "source"), key=_weight)[:SHOWN]
    place = {node.id: turn for turn, node in enumerate(sources)}
    near: dict[str, list[str]] = {}
    for edge in edges:
        near.setdefault(edge.start, []).append(edge.end)
        near.setdefault(edge.end, []).append(edge.start)
    found = list(sources)
    for kind in ("topic", "view", "reader"):
        ranked = sorted(
            (node for node in nodes if node.kind == kind),
            key=lambda node: (
                min((place[id] for id in near.get(node.id, ()) if id in place), default=len(nodes)),
                _weight(node),
            ),
        )[:SHOWN]
        place.update({node.id: turn for turn, node in enumerate(ranked)})
        found += ranked
    return found


def _weight(node: Node) -> tuple[int, int, float, str]:
    return (
        0 if node.bottleneck else 1,
        _BAD_FIRST.get(words.tone(node.state), 3),
        -(node.rate or 0.0),
        node.name,
    )


def _box(node: Node) -> dict[str, Any]:
    facts = []
    if node.state and words.tone(node.state) != "good":
        facts.append({"text": words.said(node.state), "tone": words.tone(node.state)})
    if node.rate is not None:
        facts.append({"text": words.rate(node.rate), "tone": ""})
    if node.lag_s is not None:
        facts.append({"text": f"{words.span(node.lag_s)} behind", "tone": "warn" if node.lag_s > 30 else ""})
    elif node.lag:
        facts.append({"text": f"{words.short(node.lag)} behind", "tone": ""})
    if node.detail:
        facts.append({"text": node.detail, "tone": ""})
    return {
        "id": node.id, "name": node.name, "tone": words.tone(node.state), "bottleneck": node.bottleneck, "why": node.why,
        "link": node.link, "facts": facts,
    }  # fmt: skip


def _line(start: Node, end: Node) -> str:
    if "bad" in (words.tone(start.state), words.tone(end.state)):
        return "bad"
    return "live" if (end.rate or start.rate) else ""
