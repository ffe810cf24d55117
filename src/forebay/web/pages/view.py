"""One view: schema, newest rows, changes as they come, freshness, size, files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from nicegui import background_tasks, ui

from forebay.web.model import Changes, ShownColumn
from forebay.web.pages import parts, tables, words
from forebay.web.pages.frame import Face, call
from forebay.web.pages.source import event_rows

NEWEST: Final = 50
TAIL: Final = 100  # changes that stay on the screen
_COLUMNS: Final = ({"label": "Column", "mono": True}, {"label": "Type", "mono": True}, {"label": "NULL"})
_EVENT: Final = ({"label": "When"}, {"label": "What"}, {"label": "State"}, {"label": "Message", "wide": True})


async def show(face: Face, name: str = "") -> None:
    with face.page("/views", name or "View"):
        if await face.attempt(face.backend.view, name) is None:
            parts.text(name, "mono", "h1")
            parts.empty(
                f"There is no view '{name}'.", "The list has those that there are: Views, on the left."
            )
            return
        with parts.box("line"):
            parts.text(name, "mono", "h1")
            state = parts.badge("")
            over = parts.text("", "muted small", "span")
            ui.space()
            with parts.box("go", "a") as ask:
                ask._props["href"] = words.link("/sql", text=_question(name))
                parts.text("Ask it in SQL", tag="span")
        hint = parts.text("", "notice warn")
        rows, fresh, size, files, rate = parts.tiles(
            "Rows", "Last written", "Size", "Files", "Records a second"
        )
        with ui.tabs().props("align=left breakpoint=0") as tabs:
            first, second, third, fourth = (
                ui.tab(each) for each in ("Newest rows", "Live tail", "Schema", "Definition and events")
            )
        with ui.tab_panels(tabs, value=first).props("animated=false"):
            with ui.tab_panel(first), parts.panel(flush=True):
                newest = parts.Grid(f"Newest rows of {name}", ())
                none = parts.text("No row yet. Rows are here as soon as the first batch is written.", "muted")
                none.style("padding: 16px")
            with ui.tab_panel(second), parts.panel(flush=True):
                tail = _Tail(face, name)
            with ui.tab_panel(third), parts.panel(flush=True):
                schema = parts.Grid(f"Columns of {name}", _COLUMNS)
            with ui.tab_panel(fourth), parts.box("stack loose"):
                with parts.panel("Definition"):
                    definition = parts.text("", "definition", "pre")
                    definition._props["tabindex"] = "0"
                    path = parts.text("", "muted small mono anywhere")
                with parts.panel("Events", flush=True):
                    events = parts.Grid(f"Events of {name}", _EVENT)
        tabs.on_value_change(lambda event: turned(str(event.value)))
    version: int | None = -1
    here = "Newest rows"

    async def turned(tab: str) -> None:
        nonlocal here
        here = tab
        tail.follow(tab == "Live tail")
        await face.look(refresh)

    async def refresh() -> None:
        nonlocal version
        page = await call(face.backend.view, name)
        row = page.row
        state.set_text(words.said(row.state))
        parts.dress(state, f"badge {words.tone(row.state)}")
        over.set_text("over " + ", ".join(row.sources))
        wrong = " ".join(filter(None, (row.message, row.hint))) if row.hint else ""
        hint.set_text(wrong)
        hint.set_visibility(bool(wrong))
        rows.show(words.count(page.rows), f"version {page.version}" if page.version is not None else "")
        fresh.show(
            f"{words.span(page.freshness_s)} ago" if page.freshness_s is not None else words.UNKNOWN,
            f"batch {row.batch:,}, {words.millis(row.batch_ms)}" if row.batch >= 0 else "",
        )
        size.show(words.size(page.size_bytes), "in its table")
        files.show(words.count(page.files), "merged as they grow many")
        rate.show(words.rate(row.rate), f"{words.count(row.records)} in all")
        schema.show([_column(column) for column in page.columns])
        definition.set_text(page.definition)
        path.set_text(page.path)
        events.show(event_rows(page.events[:20]))
        if page.version != version and here == "Newest rows":
            table = await call(face.backend.newest, name, NEWEST)
            newest.columns(tables.columns(table))
            newest.show(tables.rows(table))
            none.set_visibility(not table.rows)
            newest.set_visibility(bool(table.rows))
            version = page.version

    await face.live(refresh)


def _column(column: ShownColumn) -> dict[str, Any]:
    return {"id": column.name, "cells": [column.name, column.type, "yes" if column.nullable else "NOT NULL"]}


class _Tail:
    """Changes of a view as they come, while the tab is open."""

    def __init__(self, face: Face, view: str) -> None:
        self._face, self._view = face, view
        self._on = False
        self._task: asyncio.Task[None] | None = None
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._words = parts.text("", "muted small")
        self._words.style("padding: 10px 16px 0")
        self._words._props["aria-live"] = "polite"
        self._grid = parts.Grid(f"Changes of {view}", ())
        ui.context.client.on_delete(lambda: self.follow(False))

    def follow(self, on: bool) -> None:
        self._on = on
        if on and (self._task is None or self._task.done()):
            self._words.set_text("Waiting for the next change…")
            self._task = background_tasks.create(self._run(), name="tail of a view")

    async def _run(self) -> None:
        # A short timeout ends a wait in the thread soon after the tab is left.
        after: int | None = None
        while self._on:
            changes = self._face.backend.tail(self._view, after, 2.0)
            while self._on and (some := await call(_next, changes)) is not None:
                after = some.version
                self._add(some)

    def _add(self, some: Changes) -> None:
        self._grid.columns(tables.columns(some.table))
        fresh = tables.rows(some.table, self._count)
        self._count += len(fresh)
        self._rows = (list(reversed(fresh)) + self._rows)[:TAIL]
        self._grid.show(list(self._rows))
        self._words.set_text(
            f"{self._count:,} changes since this was opened; the newest {len(self._rows)} are here."
        )


def _next(changes: Iterator[Changes]) -> Changes | None:
    return next(changes, None)


def _question(view: str) -> str:
    """A question to begin with; it is typed into the worksheet, and a person runs it."""
    name = view if view.isidentifier() else "`" + view.replace("`", "``") + "`"
    return " ".join(("SELECT * FROM", name, "LIMIT 100"))
