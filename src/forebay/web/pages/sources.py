"""All sources in a list."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from forebay.web.model import SourceRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

SIZE: Final = 50
_COLUMNS: Final = (
    {"label": "Source", "mono": True}, {"label": "State"}, {"label": "Records/s", "align": "end"}, {"label": "Behind", "align": "end"},
    {"label": "Lag", "align": "end", "phone": False}, {"label": "Catches up", "phone": False}, {"label": "Letters", "align": "end"},
    {"label": "Topic", "mono": True, "phone": False}, {"label": "Format", "phone": False}, {"label": "On error", "phone": False},
    {"label": "Views", "align": "end", "phone": False},
)  # fmt: skip
_URGENT: Final = {"bad": 0, "warn": 1, "hold": 2}


async def show(face: Face, search: str = "") -> None:
    with face.page("/sources", "Sources"):
        with parts.box("line"):
            parts.text("Sources", tag="h1")
            ui.space()
            wanted = ui.input("Search", value=search).props("outlined dense clearable debounce=80")
        with parts.panel(flush=True):
            grid = parts.Grid("Sources", _COLUMNS)
            with parts.box() as none:
                parts.empty("No source here.", "A source is made by CREATE SOURCE, in the worksheet or a .sql file:",
                            "CREATE SOURCE orders (id BIGINT) FROM KAFKA (topic = 'orders', format = 'json')")  # fmt: skip

            async def refresh() -> None:
                rows = await call(face.backend.sources)
                asked = str(wanted.value or "").lower()
                found = sorted(
                    (row for row in rows if asked in f"{row.name} {row.topic} {row.state}".lower()), key=_turn
                )
                none.set_visibility(not rows)
                grid.show([_row(row) for row in pager.cut(found)])

            pager = parts.Pager(SIZE, lambda: face.look(refresh))
        wanted.on_value_change(lambda: face.look(refresh))
    await face.live(refresh)


def _turn(row: SourceRow) -> tuple[int, float, str]:
    """What needs somebody first."""
    return _URGENT.get(words.tone(row.state), 3), -(row.lag_s or 0.0), row.name


def _row(row: SourceRow) -> dict[str, Any]:
    state = "paused" if row.paused else row.state
    return {
        "id": row.name,
        "cells": [
            {"text": row.name, "href": words.link("/source", name=row.name)},
            {"text": words.said(state), "tone": f"badge {words.tone(state)}", "title": " ".join(filter(None, (row.message, row.hint)))},
            words.rate(row.rate), words.span(row.lag_s) if row.lag_s is not None else None,
            words.count(row.lag) if row.lag is not None else None, row.catch_up or "",
            {"text": words.count(row.letters), "href": words.link("/letters", owner=row.name), "tone": "bad"} if row.letters else "0",
            row.topic or "", row.format or row.connector, words.said(row.on_error), len(row.views),
        ],
    }  # fmt: skip
