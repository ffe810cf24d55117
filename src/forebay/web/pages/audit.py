"""Who changed what, when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from forebay.web.model import AuditRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

KEPT: Final = 1000
SIZE: Final = 50
_COLUMNS: Final = (
    {"label": "When"}, {"label": "Who"}, {"label": "Did"}, {"label": "To", "mono": True}, {"label": "Outcome"}, {"label": "Detail", "wide": True},
)  # fmt: skip


async def show(face: Face) -> None:
    with face.page("/audit", "Audit"):
        with parts.box("line"):
            parts.text("Audit", tag="h1")
            parts.text("Nothing is ever taken out of this list.", "muted small", "span")
            ui.space()
            wanted = ui.input("Search").props("outlined dense clearable debounce=80")
        with parts.panel(flush=True):
            grid = parts.Grid("Changes", _COLUMNS)
            with parts.box() as none:
                parts.empty(
                    "Nobody has changed anything yet.",
                    "Pauses, replays, discards, statements and test records are listed here, with who did it.",
                )
            pager = parts.Pager(SIZE, lambda: draw())
    known: Sequence[AuditRow] = ()

    def draw() -> None:
        asked = str(wanted.value or "").lower()
        found = [
            row
            for row in known
            if asked in f"{row.actor} {row.action} {row.target} {row.detail} {row.outcome}".lower()
        ]
        none.set_visibility(not known)
        grid.show([_row(row) for row in pager.cut(found)])

    async def refresh() -> None:
        nonlocal known
        known = await call(face.backend.audit, KEPT)
        draw()

    wanted.on_value_change(draw)
    await face.live(refresh)


def _row(row: AuditRow) -> dict[str, Any]:
    said = " ".join(filter(None, (row.detail, row.message)))
    return {
        "id": str(row.id),
        "cells": [
            {"ms": row.at_ms}, row.actor, row.action, row.target, {"text": row.outcome, "tone": f"badge {words.tone(row.outcome)}"},
            {"text": said, "title": said},
        ],
    }  # fmt: skip
