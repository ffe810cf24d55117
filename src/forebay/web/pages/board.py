"""Agents: artifacts by type, an artifact's history, a correlation's timeline, retries and letters by agent."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from forebay.web.model import AgentRow, ArtifactRow, BoardPage
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

_TYPES: Final = ({"label": "Type", "mono": True, "wide": True}, {"label": "Artifacts", "align": "end"})
_AGENTS: Final = (
    {"label": "Agent", "mono": True, "wide": True}, {"label": "Consumed", "align": "end", "phone": False}, {"label": "Produced", "align": "end", "phone": False},
    {"label": "Retries", "align": "end"}, {"label": "Letters", "align": "end"}, {"label": "Lag", "align": "end"},
)  # fmt: skip
_ARTIFACTS: Final = (
    {"label": "Made"}, {"label": "Type", "mono": True}, {"label": "By", "mono": True, "phone": False}, {"label": "Version", "align": "end", "phone": False},
    {"label": "Correlation", "mono": True, "phone": False}, {"label": "Payload", "mono": True, "wide": True},
)  # fmt: skip
_TIMELINE: Final = ({"label": "When"}, {"label": "What"}, {"label": "Who", "mono": True}, {"label": "Artifact", "mono": True, "phone": False}, {"label": "", "wide": True})  # fmt: skip


async def show(face: Face, type: str = "", correlation: str = "", artifact: str = "") -> None:
    with face.page("/agents", "Agents"):
        page = await face.attempt(_ask, face, type, correlation, artifact)
        with parts.box("line"):
            parts.text("Agents", tag="h1")
            if page is not None:
                parts.text(f"blackboard {page.prefix} on {page.brokers}", "muted small anywhere", "span")
            for name, value in (("type", type), ("correlation", correlation), ("artifact", artifact)):
                if value:
                    parts.badge(f"{name} {value}", "info")
            if type or correlation or artifact:
                with parts.box("go", "a") as back:
                    back._props["href"] = "/agents"
                    parts.text("Show all", tag="span")
        if page is None:
            with parts.panel():
                parts.empty("No blackboard is looked at.", "Agents share their work through one. Give the dashboard the board's name and brokers:",
                            "forebay ui --prefix PREFIX --brokers HOST:PORT")  # fmt: skip
            return
        wrong = parts.text("", "notice bad")
        if correlation or artifact:
            with parts.panel("Timeline", flush=True):
                timeline = parts.Grid("Timeline", _TIMELINE)
        with parts.box("cols"):
            with parts.panel("Agents", note="lag: of the group that they share", flush=True):
                agents = parts.Grid("Agents", _AGENTS)
            with parts.panel("Artifacts by type", flush=True):
                types = parts.Grid("Artifacts by type", _TYPES)
        with parts.panel("Newest artifacts", note="click one for its history", flush=True):
            artifacts = parts.Grid(
                "Newest artifacts",
                _ARTIFACTS,
                on_open=lambda id: ui.navigate.to(words.link("/agents", artifact=id)),
            )

    async def refresh() -> None:
        now = await call(_ask, face, type, correlation, artifact)
        if now is None:
            return
        wrong.set_text(now.error)
        wrong.set_visibility(bool(now.error))
        agents.show([_agent(each) for each in now.agents])
        types.show(
            [
                {
                    "id": name,
                    "cells": [{"text": name, "href": words.link("/agents", type=name)}, words.count(many)],
                }
                for name, many in now.types.items()
            ]
        )
        artifacts.show([_artifact(each) for each in now.artifacts])
        if correlation or artifact:
            timeline.show([
                {"id": str(place), "cells": [
                    {"ms": step["at_ms"]} if step.get("at_ms") is not None else None, words.plain(step.get("what", "")), words.plain(step.get("who") or ""),
                    _link(step.get("artifact")), {"text": words.plain(step.get("detail") or ""), "title": words.plain(step.get("detail") or "")},
                ]}
                for place, step in enumerate(now.timeline)
            ])  # fmt: skip

    await face.live(refresh)


def _link(id: Any) -> Any:
    return {"text": str(id), "href": words.link("/agents", artifact=str(id))} if id else ""


def _ask(face: Face, type: str, correlation: str, artifact: str) -> BoardPage | None:
    return face.backend.board(type or None, correlation or None, artifact or None)


def _agent(row: AgentRow) -> dict[str, Any]:
    return {
        "id": row.name,
        "cells": [
            row.name, words.count(row.consumed), words.count(row.produced), words.count(row.retries) if row.retries is not None else None,
            {"text": words.count(row.letters), "tone": "bad" if row.letters else ""} if row.letters is not None else None,
            words.count(row.lag) if row.lag is not None else None,
        ],
    }  # fmt: skip


def _artifact(row: ArtifactRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "cells": [
            {"ms": row.created_ms}, row.type, row.produced_by, row.version,
            {"text": row.correlation_id, "href": words.link("/agents", correlation=row.correlation_id)} if row.correlation_id else "",
            {"text": row.payload[:300] if row.payload is not None else "hidden", "title": (row.payload or "")[:2000]},
        ],
    }  # fmt: skip
