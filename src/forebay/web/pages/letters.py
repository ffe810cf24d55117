"""Dead letters: groups of the same fault, whose they are, and a search in all of them."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from nicegui import ui

from forebay.deadletter.desk_views import IndexState, LetterGroup, LetterRow, OwnerView, StateFilter
from forebay.web.pages import jobs, parts, words
from forebay.web.pages.frame import Face, call, say
from forebay.web.pages.group import STATES

SIZE: Final = 50
_GROUPS: Final = (
    {"label": "What is wrong", "wide": True}, {"label": "Kind"}, {"label": "Field", "mono": True, "phone": False}, {"label": "Source", "mono": True},
    {"label": "Letters", "align": "end"}, {"label": "Over time", "phone": False}, {"label": "First", "phone": False}, {"label": "Last", "phone": False},
)  # fmt: skip
_FOUND: Final = ({"label": "Letter", "mono": True}, {"label": "State"}, {"label": "Kind", "phone": False}, {"label": "What is wrong", "wide": True}, {"label": "Refused"})  # fmt: skip
_OWNERS: Final = (
    {"label": "Whose", "mono": True}, {"label": "Written by"}, {"label": "Open", "align": "end"}, {"label": "Replayed", "align": "end"},
    {"label": "Failed again", "align": "end"}, {"label": "Discarded", "align": "end", "phone": False}, {"label": "Kept out", "align": "end", "phone": False},
    {"label": "Where", "mono": True, "wide": True},
)  # fmt: skip
_KINDS: Final = {"source": "a source here", "forebay": "a pool, agent or source elsewhere", "connect": "Kafka Connect", "spring": "Spring", "streams": "Kafka Streams"}  # fmt: skip


async def show(face: Face, owner: str = "", search: str = "") -> None:
    desk = face.backend.desk
    with face.page("/letters", "Dead letters"):
        with parts.box("line"):
            parts.text("Dead letters", tag="h1")
            ui.space()
            whose = (
                ui.select({"": "Everybody"}, value="", label="Whose")
                .props("outlined dense options-dense")
                .style("min-width: 150px")
            )
            state = (
                ui.select(STATES, value="open", label="State")
                .props("outlined dense options-dense")
                .style("min-width: 130px")
            )
            wanted = ui.input("Search letters", value=search).props("outlined dense clearable debounce=250")
            parts.button("Watch a topic", lambda: watch(), icon="visibility", disabled=face.read_only)
        index = parts.text("", "notice info")
        index.set_visibility(False)
        running = jobs.Jobs(face)
        with parts.panel("Groups of the same fault", flush=True) as grouped:
            grid = parts.Grid("Groups of letters", _GROUPS)
            with parts.box() as none:
                nothing = parts.text("", "muted")
                nothing.style("padding: 20px 16px")
            pager = parts.Pager(SIZE, lambda: face.look(lambda: refresh()))
        with parts.panel("Letters that match", flush=True) as matching:
            found = parts.Grid("Letters that match", _FOUND)
            note = parts.text("", "muted small")
            note.style("padding: 8px 16px")
            turned = parts.Pager(SIZE, lambda: face.look(lambda: refresh()))
        with parts.panel("Whose letters", flush=True):
            owners = parts.Grid("Whose letters", _OWNERS)

    picked_owner = owner

    async def refresh() -> None:
        nonlocal picked_owner
        known = await call(desk.owners)
        choices = {"": "Everybody", **{each.key: each.name for each in known}}
        if choices != whose.options:
            whose.set_options(choices, value=picked_owner if picked_owner in choices else "")
        picked_owner = str(whose.value or "")
        owners.show([_owner(each) for each in known])
        await running.refresh()
        asked = str(wanted.value or "").strip()
        grouped.set_visibility(not asked)
        matching.set_visibility(bool(asked))
        chosen = cast(StateFilter, state.value)
        if asked:
            page = await call(desk.letters, None, chosen, turned.page, SIZE, asked, picked_owner or None)
            turned.show(page.total)
            found.show([_letter(row) for row in page.letters])
            looked = f"{page.searched:,} letters were looked at." if page.searched is not None else ""
            note.set_text(
                f"{words.many(page.total, 'letter matches', 'letters match')}. {looked} What is masked is not found."
            )
            _progress(index, page.index)
            return
        answer = await call(desk.groups, picked_owner or None, chosen)
        grid.show([_group(each) for each in pager.cut(answer.groups)])
        grid.set_visibility(bool(answer.groups))
        none.set_visibility(not answer.groups)
        nothing.set_text(_nothing(chosen, bool(known)))
        _progress(index, answer.index)

    async def again() -> None:
        pager.first()
        turned.first()
        await face.look(refresh)

    async def watch() -> None:
        with ui.dialog() as dialog, ui.card().classes("dialog"):
            parts.text("Watch a topic of dead letters", tag="h2")
            parts.text(
                "Letters of pools, agents, Kafka Connect, Spring and Kafka Streams are shown beside those of the sources.",
                "muted",
            )
            topic = ui.input("Topic").props("outlined dense")
            brokers = ui.input("Brokers (empty: those of the sources)").props("outlined dense")
            with parts.box("line"):
                ui.space()
                parts.button("Cancel", lambda: dialog.submit(None))
                parts.button("Watch", lambda: dialog.submit((topic.value, brokers.value)), kind="main-action")
        answer = await dialog
        dialog.delete()
        if answer is None or not str(answer[0] or "").strip():
            return
        if await face.attempt(_watch, face, str(answer[0]).strip(), str(answer[1] or "").strip() or None):
            say("Its letters are here as soon as they are read.")
            await face.look(refresh)

    whose.on_value_change(again)
    state.on_value_change(again)
    wanted.on_value_change(again)
    await face.live(refresh)


def _watch(face: Face, topic: str, brokers: str | None) -> bool:
    face.backend.desk.watch_topic(topic, brokers, face.actor)
    return True


def _nothing(state: str, known: bool) -> str:
    if not known:
        return "Nobody writes dead letters here. A source with ON ERROR 'dead_letter' does; so does a pool with a dead-letter topic, which can be watched."
    return (
        "No open letter. Every record was accepted, repaired or discarded."
        if state == "open"
        else f"No letter is {STATES[state].lower()}."
    )


def _progress(notice: ui.label, index: IndexState) -> None:
    said = ""
    if index.error:
        said = f"The letters cannot be read now: {index.error}"
    elif index.building or index.behind > 0:
        said = f"The letters are being read: {100 * index.share:.0f} % of them are here."
    notice.set_text(said)
    parts.dress(notice, "notice " + ("bad" if index.error else "info"))
    notice.set_visibility(bool(said))


def _group(group: LetterGroup) -> dict[str, Any]:
    return {
        "id": group.id,
        "cells": [
            {"text": group.pattern, "title": group.pattern, "href": words.link("/letters/group", id=group.id)}, {"text": group.kind, "tone": "badge bad"},
            group.field or "", group.source, words.count(group.letters), {"spark": _spark(group), "text": f"{words.many(group.letters, 'letter')} over time"},
            {"ms": group.first_ms}, {"ms": group.last_ms},
        ],
    }  # fmt: skip


def _spark(group: LetterGroup) -> list[int]:
    """Counts up to now, with a zero before: a group that is young has buckets that are still to come."""
    passed = (max(int(time.time() * 1000), group.last_ms) - group.buckets_from_ms) // max(
        1, group.bucket_ms
    ) + 1
    return [0, *group.buckets[: max(1, passed)]]


def _letter(row: LetterRow) -> dict[str, Any]:
    return {
        "id": f"{row.owner} {row.id}",
        "cells": [
            {"text": f"{row.topic}/{row.partition}/{row.offset}", "href": words.link("/letters/group", id=row.group, letter=row.id)},
            {"text": words.said(row.fate), "tone": f"badge {words.tone(row.fate)}"}, row.kind, {"text": row.pattern, "title": row.pattern}, {"ms": row.failed_at_ms},
        ],
    }  # fmt: skip


def _owner(owner: OwnerView) -> dict[str, Any]:
    counts = owner.counts
    return {
        "id": owner.key,
        "cells": [
            {"text": owner.name, "href": words.link("/letters", owner=owner.key)}, _KINDS[owner.kind],
            *(words.count(counts.get(state, 0)) for state in ("open", "replayed", "failed_again", "discarded")),
            words.count(owner.kept_out), owner.place,
        ],
    }  # fmt: skip
