"""What happened: states, rebalances, errors, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from forebay.web.model import EventRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

KEPT: Final = 1000
SIZE: Final = 50
_COLUMNS: Final = ({"label": "When"}, {"label": "Of", "mono": True}, {"label": "What"}, {"label": "State"}, {"label": "Message", "wide": True})  # fmt: skip


async def show(face: Face, name: str = "") -> None:
    with face.page("/events", "Events"):
        with parts.box("line"):
            parts.text("Events", tag="h1")
            ui.space()
            wanted = ui.input("Search", value=name).props("outlined dense clearable debounce=80")
        with parts.panel(flush=True):
            grid = parts.Grid("Events", _COLUMNS)
            with parts.box() as none:
                parts.empty(
                    "Nothing has happened yet.",
                    "States of sources and views, rebalances and errors are listed here.",
                )
            pager = parts.Pager(SIZE, lambda: draw())
    known: Sequence[EventRow] = ()

    def draw() -> None:
        asked = str(wanted.value or "").lower()
        found = [row for row in known if asked in f"{row.name} {row.kind} {row.state} {row.message}".lower()]
        none.set_visibility(not known)
        grid.show([_row(row, place) for place, row in enumerate(pager.cut(found))])

    async def refresh() -> None:
        nonlocal known
        known = await call(face.backend.events, KEPT)
        draw()

    wanted.on_value_change(draw)
    await face.live(refresh)


def _row(row: EventRow, place: int) -> dict[str, Any]:
    said = " ".join(filter(None, (row.message, row.hint)))
    return {
        "id": f"{row.at_ms}:{place}",
        "cells": [
            {"ms": row.at_ms}, row.name, row.kind, {"text": words.said(row.state), "tone": f"badge {words.tone(row.state)}"} if row.state else "",
            {"text": said, "title": said},
        ],
    }  # fmt: skip
