"""Records of a topic, by offset or time, as they are or as a source decodes them; and a test record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from forebay.web.model import TopicRecord
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call, say

SIZE: Final = 50
CUT: Final = 160
_COLUMNS: Final = (
    {"label": "Partition", "align": "end"}, {"label": "Offset", "align": "end"}, {"label": "Written"}, {"label": "Key", "mono": True, "phone": False},
    {"label": "Value", "mono": True, "wide": True}, {"label": "Bytes", "align": "end", "phone": False}, {"label": "Decoded", "phone": False},
)  # fmt: skip


async def show(face: Face, name: str = "", partition: str = "", offset: str = "") -> None:
    with face.page("/topics", name or "Topic"):
        with parts.box("line"):
            parts.text(name, "mono", "h1")
            ui.space()
            parts.button("Produce a test record", lambda: produce(), icon="add", disabled=face.read_only)
        with parts.panel(), parts.box("line"):
            where = (
                ui.input("Partition (empty: all)", value=partition)
                .props("outlined dense")
                .style("width: 150px")
            )
            begin = ui.input("From offset", value=offset).props("outlined dense").style("width: 130px")
            since = (
                ui.input("Or from time (UTC)", placeholder="2026-01-31 12:00:00")
                .props("outlined dense")
                .style("width: 190px")
            )
            decoder = (
                ui.select({"": "as they are"}, value="", label="Decoded by")
                .props("outlined dense options-dense")
                .style("min-width: 150px")
            )
            parts.button("Show", lambda: browse(), kind="main-action")
            parts.button("Newest", lambda: newest())
            further = parts.button("Next page", lambda: onward(), disabled=True)
        with parts.box("cols browse"):
            with parts.panel("Records", flush=True):
                grid = parts.Grid("Records", _COLUMNS, on_open=lambda id: look_at(id))
                none = parts.text("The brokers are being asked…", "muted")
                none.style("padding: 20px 16px")
            with parts.panel("Record"):
                detail = ui.element("div").classes("stack")
                with detail:
                    parts.empty("No record is open.", "Click one in the list.")
    records: dict[str, TopicRecord] = {}
    nexts: Mapping[int, int] = {}

    async def browse(offset: int | None = None, partition: int | None = None) -> None:
        nonlocal nexts
        try:
            at = offset if offset is not None else _number(begin.value)
            part = partition if partition is not None else _number(where.value)
            time = _time(since.value)
        except ValueError as error:
            say(str(error), bad=True)
            return
        found = await face.attempt(
            face.backend.browse, name, part, at, time if at is None else None, SIZE, str(decoder.value or "") or None
        )  # fmt: skip
        if found is None:
            none.set_text("The records could not be read.")
            return
        nexts = found.next
        records.clear()
        records.update({f"{record.partition}/{record.offset}": record for record in found.records})
        grid.show([_row(record) for record in found.records])
        none.set_visibility(not found.records)
        none.set_text("No record there.")
        further.set_enabled(len(found.records) >= SIZE and part is not None and part in nexts)

    async def newest() -> None:
        begin.set_value("")
        since.set_value("")
        await browse()

    async def onward() -> None:
        part = _number(where.value)
        if part is not None and part in nexts:
            begin.set_value(str(nexts[part]))
            await browse(nexts[part], part)

    def look_at(id: str) -> None:
        grid.show([_row(record) for record in records.values()], id)
        detail.clear()
        with detail:
            _detail(records[id])

    async def produce() -> None:
        answer = await _ask(name)
        if answer is None:
            return
        key, value, headers, part = answer
        done = await face.attempt(face.backend.produce, name, key, value, headers, face.actor, part)
        if done is not None:
            say(f"Written: {done.topic}/{done.partition}/{done.offset}")
            await newest()

    async def begin_with() -> None:
        reading = {each: each for each in await call(face.backend.readers_of, name)}
        decoder.set_options({"": "as they are", **reading}, value=next(iter(reading), ""))
        await browse()

    ui.timer(0, lambda: face.look(begin_with), once=True)


def _row(record: TopicRecord) -> dict[str, Any]:
    value = "hidden" if record.hidden else record.value if record.value is not None else record.value_hex
    judged: Any = ""
    if record.fault:
        judged = {"text": "refused", "tone": "badge bad", "title": record.fault}
    elif record.row is not None:
        judged = {"text": "accepted", "tone": "badge good"}
    return {
        "id": f"{record.partition}/{record.offset}",
        "cells": [
            record.partition, words.count(record.offset), {"ms": record.timestamp_ms} if record.timestamp_ms is not None else None,
            "hidden" if record.hidden else (record.key if record.key is not None else record.key_hex or None),
            None if value is None else {"text": value[:CUT]}, words.count(record.value_bytes) if record.value_bytes is not None else None, judged,
        ],
    }  # fmt: skip


def _detail(record: TopicRecord) -> None:
    parts.text(f"{record.topic}/{record.partition}/{record.offset}", "mono anywhere", "h3")
    if record.hidden:
        parts.text("Payloads are hidden in this dashboard.", "notice")
    if record.fault:
        parts.text(record.fault, "notice bad")
    for title, text, digits in (
        ("Key", record.key, record.key_hex),
        ("Value", record.value, record.value_hex),
    ):
        if text is not None or digits is not None:
            parts.text(title, tag="h3")
            parts.Bytes(title, [{"text": text if text is not None else digits or ""}])
    if record.cut:
        parts.text("The value is longer than what is shown.", "muted small")
    if record.row is not None:
        parts.text("As the source reads it", tag="h3")
        parts.facts([(name, words.plain(value)) for name, value in record.row.items()])
    if record.headers:
        parts.text("Headers", tag="h3")
        parts.facts(
            [
                (header.key, header.text if header.text is not None else header.hex or "")
                for header in record.headers
            ]
        )


async def _ask(topic: str) -> tuple[str | None, str | None, dict[str, str], int | None] | None:
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        parts.text(f"Produce a test record to {topic}", tag="h2")
        key = ui.input("Key (empty: none)").props("outlined dense")
        value = ui.textarea("Value").props("outlined autogrow")
        headers = ui.textarea("Headers as JSON (empty: none)").props("outlined autogrow dense")
        partition = ui.input("Partition (empty: by the key)").props("outlined dense")
        wrong = parts.text("", "bad small")

        def send() -> None:
            try:
                given = json.loads(headers.value) if headers.value else {}
                if not isinstance(given, dict):
                    raise ValueError("headers are a JSON object of names and texts")
                where = _number(partition.value)
            except ValueError as error:
                wrong.set_text(str(error))
                return
            dialog.submit(
                (key.value or None, value.value or None, {str(k): str(v) for k, v in given.items()}, where)
            )

        with parts.box("line"):
            ui.space()
            parts.button("Cancel", lambda: dialog.submit(None))
            parts.button("Produce", send, kind="main-action")
    answer: Any = await dialog
    dialog.delete()
    return None if answer is None else (answer[0], answer[1], answer[2], answer[3])


def _number(text: Any) -> int | None:
    given = str(text or "").strip().replace(",", "")
    if not given:
        return None
    if not given.isdigit():
        raise ValueError(f"'{given}' is no partition or offset: it is a whole number")
    return int(given)


def _time(text: Any) -> int | None:
    given = str(text or "").strip()
    if not given:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(f"'{given}' is no time: write it as 2026-01-31 12:00:00") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
