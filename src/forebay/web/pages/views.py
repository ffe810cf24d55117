"""All views in a list."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from forebay.web.model import ViewRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

SIZE: Final = 50
_COLUMNS: Final = (
    {"label": "View", "mono": True}, {"label": "State"}, {"label": "Records/s", "align": "end"}, {"label": "Written", "align": "end"},
    {"label": "Lag", "align": "end", "phone": False}, {"label": "Records", "align": "end", "phone": False}, {"label": "Batch", "align": "end", "phone": False},
    {"label": "Rows come", "phone": False}, {"label": "From", "mono": True, "wide": True, "phone": False},
)  # fmt: skip


async def show(face: Face) -> None:
    with face.page("/views", "Views"):
        with parts.box("line"):
            parts.text("Views", tag="h1")
            ui.space()
            wanted = ui.input("Search").props("outlined dense clearable debounce=80")
        with parts.panel(flush=True):
            grid = parts.Grid("Views", _COLUMNS)
            with parts.box() as none:
                parts.empty("No view here.", "A view is a table that follows its sources. Make one in the worksheet:",
                            "CREATE MATERIALIZED VIEW all_orders AS SELECT * FROM orders")  # fmt: skip

            async def refresh() -> None:
                rows = await call(face.backend.views)
                asked = str(wanted.value or "").lower()
                none.set_visibility(not rows)
                grid.show(
                    [_row(row) for row in pager.cut([row for row in rows if asked in row.name.lower()])]
                )

            pager = parts.Pager(SIZE, lambda: face.look(refresh))
        wanted.on_value_change(lambda: face.look(refresh))
    await face.live(refresh)


def _row(row: ViewRow) -> dict[str, Any]:
    return {
        "id": row.name,
        "cells": [
            {"text": row.name, "href": words.link("/view", name=row.name)},
            {"text": words.said(row.state), "tone": f"badge {words.tone(row.state)}", "title": " ".join(filter(None, (row.message, row.hint)))},
            words.rate(row.rate), f"{words.span(row.freshness_s)} ago" if row.freshness_s is not None else None,
            words.count(row.lag) if row.lag is not None else None, words.count(row.records), words.millis(row.batch_ms), row.emit, ", ".join(row.sources),
        ],
    }  # fmt: skip
