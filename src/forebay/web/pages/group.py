"""The desk: one group of letters, its letters, and the one that is open."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from nicegui import ui

from forebay.deadletter.desk_views import LetterGroup, LetterRow, Selection, StateFilter
from forebay.web.pages import jobs, parts, words
from forebay.web.pages.charts import Lines
from forebay.web.pages.frame import Face, call
from forebay.web.pages.group_panel import GroupPanel
from forebay.web.pages.letter_panel import LetterPanel

SIZE: Final = 25
STATES: Final = {
    "open": "Open",
    "replayed": "Replayed",
    "failed_again": "Failed again",
    "discarded": "Discarded",
    "all": "All",
}
_COLUMNS: Final = ({"label": "Letter", "mono": True, "wide": True}, {"label": "Refused"}, {"label": "Size", "align": "end", "phone": False}, {"label": "State"})  # fmt: skip


async def show(face: Face, id: str = "", letter: str = "") -> None:
    desk = face.backend.desk
    with face.page("/letters", "Dead letters"):
        group = await face.attempt(desk.group, id)
        if group is None:
            parts.text("Dead letters", tag="h1")
            parts.empty(
                "There is no such group.",
                "Its letters may be gone, or it is of another home. Dead letters, on the left, lists those that there are.",
            )
            return
        with parts.box("stack tight"):
            with parts.box("line tight"):
                with parts.box("", "a") as back:
                    back._props["href"] = words.link("/letters", owner=group.owner)
                    parts.text(f"Dead letters of {group.source}", tag="span")
                parts.badge(group.kind, "bad")
                if group.field:
                    parts.text(f"field {group.field}", "mono muted small anywhere", "span")
            parts.text(group.pattern, "anywhere", "h1")
        tiles = parts.tiles("Open", "Replayed", "Failed again", "Discarded", "First refused", "Last refused")
        running = jobs.Jobs(face, group.owner)
        with parts.box("cols desk"):
            with parts.box("stack loose"):
                with parts.panel("Letters over time"):
                    trend = Lines("Letters over time", stacked=True, small=True)
                with parts.panel("Letters", flush=True):
                    with parts.box("line") as bar:
                        bar.style("padding: 0 16px")
                        state = (
                            ui.select(STATES, value="open", label="State")
                            .props("outlined dense options-dense")
                            .style("min-width: 130px")
                        )
                        search = (
                            ui.input("Search").props("outlined dense clearable debounce=250").classes("grow")
                        )
                    with parts.box("line tight") as actions:
                        actions.style("padding: 0 16px")
                        chosen = parts.text("", "small", "span")
                        parts.button("Replay", lambda: selected("replay"), icon="replay")
                        parts.button("Discard", lambda: selected("discard"), kind="danger")
                    actions.set_visibility(False)
                    grid = parts.Grid(
                        "Letters of the group",
                        _COLUMNS,
                        on_open=lambda id: open_letter(id),
                        on_select=lambda ids: picked(ids),
                    )
                    none = parts.text("", "muted")
                    none.style("padding: 12px 16px")
                    pager = parts.Pager(SIZE, lambda: face.look(lambda: rows()))
            with parts.panel():
                with ui.tabs().props("align=left dense breakpoint=0") as tabs:
                    one, whole = ui.tab("Letter"), ui.tab("Whole group")
                with ui.tab_panels(tabs, value=one).props("animated=false"):
                    with ui.tab_panel(one):
                        opened = LetterPanel(face, lambda: face.look(lambda: everything()))
                    with ui.tab_panel(whole):
                        together = GroupPanel(face, group, lambda: face.look(lambda: everything()))
                tabs.on_value_change(
                    lambda event: together.preview() if event.value == "Whole group" else None
                )

    owner = group.owner
    known: dict[str, LetterRow] = {}

    async def rows() -> None:
        page = await call(
            desk.letters,
            id,
            cast(StateFilter, state.value),
            pager.page,
            SIZE,
            str(search.value or "") or None,
        )
        known.clear()
        known.update({row.id: row for row in page.letters})
        pager.show(page.total)
        current = opened.open.row.id if opened.open is not None else None
        grid.show([_row(row) for row in page.letters], current)
        grid.set_visibility(bool(page.letters))
        none.set_visibility(not page.letters)
        asked = (
            f"No letter is {STATES[str(state.value)].lower()} here."
            if state.value != "all"
            else "No letter here."
        )
        none.set_text(
            f"No letter matches, among {page.searched:,} that were looked at."
            if search.value and page.searched is not None
            else asked
        )

    async def everything() -> None:
        now = await call(desk.group, id)
        _numbers(now, tiles, trend)
        together.update(now)
        await running.refresh()
        await opened.refresh()
        await rows()

    async def open_letter(letter: str) -> None:
        tabs.set_value("Letter")
        await opened.show(owner, letter)
        grid.show([_row(row) for row in known.values()], letter)

    def picked(ids: list[str]) -> None:
        actions.set_visibility(bool(ids) and not face.read_only)
        chosen.set_text(f"{words.many(len(ids), 'letter')} selected")

    async def selected(verb: str) -> None:
        choice = Selection(owner, tuple(grid.selected))
        many = words.many(len(grid.selected), "letter")
        if await (jobs.replay if verb == "replay" else jobs.discard)(face, choice, many):
            grid.select([])
            picked([])
            await face.look(everything)

    async def again() -> None:
        pager.first()
        await face.look(rows)

    state.on_value_change(again)
    search.on_value_change(again)
    await face.live(everything, jobs.EVERY_S)
    first = letter or next(iter(known), "")
    if first:
        await open_letter(first)


def _numbers(group: LetterGroup, tiles: list[parts.Tile], trend: Lines) -> None:
    counts = group.counts
    tiles[0].show(words.count(counts.get("open", 0)), "", "warn" if counts.get("open") else "")
    tiles[1].show(words.count(counts.get("replayed", 0)))
    tiles[2].show(words.count(counts.get("failed_again", 0)), "", "bad" if counts.get("failed_again") else "")
    tiles[3].show(words.count(counts.get("discarded", 0)))
    tiles[4].show(words.ago(group.first_ms), words.utc(group.first_ms))
    tiles[5].show(words.ago(group.last_ms), words.utc(group.last_ms))
    # A group that is young has buckets that are still to come.
    last = max(int(time.time() * 1000), group.last_ms)
    starts = (
        (group.buckets_from_ms + place * group.bucket_ms, many) for place, many in enumerate(group.buckets)
    )
    points = [(at, many) for at, many in starts if at <= last]
    end = (
        max(points[-1][0] if points else last, group.buckets_from_ms + 4 * group.bucket_ms) + group.bucket_ms
    )
    trend.show({"letters": points}, (group.buckets_from_ms - group.bucket_ms, end))


def _row(row: LetterRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "cells": [
            {"text": f"{row.topic}/{row.partition}/{row.offset}", "title": row.id}, {"ms": row.failed_at_ms}, words.size(row.size),
            {"text": words.said(row.fate), "tone": f"badge {words.tone(row.fate)}"},
        ],
    }  # fmt: skip
