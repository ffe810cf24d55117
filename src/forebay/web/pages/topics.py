"""Topics of the brokers that the sources name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from forebay.web.model import TopicRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

SIZE: Final = 50
EVERY_S: Final = 10.0  # the brokers are asked
_COLUMNS: Final = (
    {"label": "Topic", "mono": True}, {"label": "Records", "align": "end"}, {"label": "Partitions", "align": "end"},
    {"label": "Read by", "mono": True, "phone": False}, {"label": "Dead letters of", "mono": True, "phone": False},
    {"label": "Brokers", "mono": True, "wide": True, "phone": False},
)  # fmt: skip


async def show(face: Face) -> None:
    with face.page("/topics", "Topics"):
        with parts.box("line"):
            parts.text("Topics", tag="h1")
            ui.space()
            wanted = ui.input("Search").props("outlined dense clearable debounce=80")
        with parts.panel(flush=True):
            grid = parts.Grid("Topics", _COLUMNS)
            none = parts.text("The brokers are being asked…", "muted")
            none.style("padding: 20px 16px")
            pager = parts.Pager(SIZE, lambda: draw())
    known: Sequence[TopicRow] = ()

    def draw() -> None:
        asked = str(wanted.value or "").lower()
        grid.show([_row(row) for row in pager.cut([row for row in known if asked in row.name.lower()])])

    async def refresh() -> None:
        nonlocal known
        known = await call(face.backend.topics)
        none.set_text("" if known else "No topic: no source names a broker yet, or they have none.")
        none.set_visibility(not known)
        draw()

    wanted.on_value_change(draw)
    # The page is there at once; brokers may take seconds to answer.
    ui.timer(0, lambda: face.look(refresh), once=True)
    ui.timer(EVERY_S, lambda: face.look(refresh), immediate=False)


def _row(row: TopicRow) -> dict[str, Any]:
    return {
        "id": f"{row.brokers} {row.name}",
        "cells": [
            {"text": row.name, "href": words.link("/topic", name=row.name)}, words.count(row.records) if row.records is not None else None,
            len(row.partitions), ", ".join(row.sources), ", ".join(row.letters_of), {"text": row.error, "tone": "bad"} if row.error else row.brokers,
        ],
    }  # fmt: skip
