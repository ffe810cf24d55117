"""One letter: what was refused and where, and its repair, tried as it is typed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui

from forebay.deadletter.desk_views import EditForm, LetterView, Selection, Trial
from forebay.web.pages import jobs, parts, payloads, words
from forebay.web.pages.editor import Editor
from forebay.web.pages.frame import Face, call

_FORMS: Final = {"text": "Text", "json": "JSON", "hex": "Hex"}


class LetterPanel:
    """Shows the letter that was opened last. `changed` is called when something became of it."""

    def __init__(self, face: Face, changed: Callable[[], Awaitable[Any]]) -> None:
        self._face, self._changed = face, changed
        self._letter: LetterView | None = None
        self._box = ui.element("div").classes("stack")
        with self._box:
            parts.empty("No letter is open.", "Click one in the list.")

    @property
    def open(self) -> LetterView | None:
        return self._letter

    async def show(self, owner: str, id: str) -> None:
        """Another letter."""
        letter = await self._face.attempt(self._face.backend.desk.letter, owner, id)
        if letter is None:
            return
        self._letter = letter
        self._box.clear()
        with self._box:
            self._draw(letter)

    async def refresh(self) -> None:
        """What became of the letter that is open. What is being typed stays."""
        letter = self._letter
        if letter is None:
            return
        fates = await call(self._face.backend.desk.fates, letter.row.owner, [letter.row.id])
        if fates.get(letter.row.id, letter.row.fate) != letter.row.fate:
            await self.show(letter.row.owner, letter.row.id)

    def _draw(self, letter: LetterView) -> None:
        row = letter.row
        with parts.box("line tight"):
            parts.text(row.id, "mono anywhere", "h2")
            parts.badge(words.said(row.fate), words.tone(row.fate))
            if letter.masked:
                parts.badge("masked", "hold")
        failed = parts.text("", "notice bad" if row.fate in ("open", "failed_again") else "notice")
        failed.set_text(f"{row.kind}: {letter.message}")
        if row.fate != "open" and letter.fate_reason:
            parts.text(letter.fate_reason, f"notice {words.tone(row.fate)}".strip())
        with ui.tabs().props("align=left dense breakpoint=0") as tabs:
            names = (
                "Repair" if self._repairable(letter) else "Value",
                "Hex",
                "Key and headers",
                "Decoding",
                "History",
            )
            made = [ui.tab(name) for name in names]
        with ui.tab_panels(tabs, value=made[0]).props("animated=false"):
            with ui.tab_panel(made[0]), parts.box("stack"):
                payloads.show_text("Value", letter.value)
                if self._repairable(letter):
                    _Repair(self._face, letter, self._changed)
                else:
                    self._other_ways(letter)
            with ui.tab_panel(made[1]), parts.box("stack"):
                payloads.show_hex("Value", letter.value)
            with ui.tab_panel(made[2]), parts.box("stack"):
                parts.text("Key", tag="h3")
                payloads.show_text("Key", letter.key)
                parts.text("Headers", tag="h3")
                if letter.headers:
                    parts.facts(
                        [
                            (header.name, header.text if header.text is not None else header.hex or "")
                            for header in letter.headers
                        ]
                    )
                else:
                    parts.text("The record has none.", "muted")
            with ui.tab_panel(made[3]), parts.box("stack"):
                parts.facts([
                    ("Stage", letter.stage.lower()), ("Size", words.size(row.size)), ("Produced", words.utc(row.timestamp_ms)), ("Refused", words.utc(row.failed_at_ms)),
                    *letter.tried, ("Today", letter.now), ("What to do", letter.remedy),
                ])  # fmt: skip
                if letter.stacktrace:
                    parts.text(letter.stacktrace, "definition", "pre")._props["tabindex"] = "0"
            with ui.tab_panel(made[4]), parts.box("stack"):
                self._history(letter)

    def _repairable(self, letter: LetterView) -> bool:
        value = letter.value
        return (
            not self._face.read_only
            and letter.row.state == "open"
            and letter.stage == "VALUE"
            and value is not None
            and value.editable
        )

    def _other_ways(self, letter: LetterView) -> None:
        if letter.remedy:
            parts.text(letter.remedy, "muted")
        if self._face.read_only:
            return
        one = Selection(letter.row.owner, (letter.row.id,))
        with parts.box("line"):
            if letter.row.state == "open":
                parts.button(
                    "Replay as it is",
                    lambda: self._do(jobs.replay(self._face, one, "this letter", ask=False)),
                    icon="replay",
                )
                parts.button(
                    "Discard", lambda: self._do(jobs.discard(self._face, one, "this letter")), kind="danger"
                )
            elif letter.row.state == "discarded":
                parts.button(
                    "Take the discard back", lambda: self._do(jobs.reopen(self._face, one)), icon="undo"
                )

    async def _do(self, doing: Awaitable[bool]) -> None:
        if await doing:
            await self._changed()

    def _history(self, letter: LetterView) -> None:
        if letter.replayed_from:
            parts.text(f"Its record is a replay of {letter.replayed_from}.", "anywhere")
        if not letter.history:
            parts.text("Nothing has become of it yet.", "muted")
        grid = parts.Grid(
            "History of the letter",
            ({"label": "When"}, {"label": "State"}, {"label": "By"}, {"label": "", "wide": True}),
        )
        grid.show([
            {"id": f"{place}", "cells": [
                {"ms": event.at_ms}, {"text": words.said(event.state), "tone": f"badge {words.tone(event.state)}"}, event.actor or "",
                {"text": event.reason or (f"to {event.target}" if event.target else "")},
            ]}
            for place, event in enumerate(letter.history)
        ])  # fmt: skip
        grid.set_visibility(bool(letter.history))


class _Repair:
    """The value in an editor; each change is decoded as the source would, and nothing is sent before that is asked for."""

    def __init__(self, face: Face, letter: LetterView, changed: Callable[[], Awaitable[Any]]) -> None:
        assert letter.value is not None
        self._face, self._letter, self._changed = face, letter, changed
        self._turn = 0
        self._form: EditForm = letter.value.form
        self._begins = payloads.edits(letter.value)
        with parts.box("line tight"):
            parts.text("Repair", tag="h3")
            if len(self._begins) > 1:
                shown = {form: _FORMS[form] for form in self._begins}
                ui.toggle(shown, value=self._form, on_change=lambda event: self._written(event.value)).props(
                    "no-caps dense unelevated"
                )
            ui.space()
            parts.button("Format JSON", self._format, kind="ghost")
            parts.button("Reset", lambda: self._reset(self._begins[self._form]), kind="ghost")
        if letter.value.form == "json" and letter.value.decoded is None:
            parts.text(
                "The whole value, as JSON that is encoded in the source's newest schema, or in hexadecimal.",
                "muted small",
            )
        self.editor = Editor("Repaired value", self._begins[self._form], "JSON", on_change=self.try_it)
        self._verdict = parts.text("", "verdict notice")
        self._verdict._props["role"] = "status"
        self._row = parts.text("", "definition", "pre")
        self._row._props["tabindex"] = "0"
        self._row.set_visibility(False)
        with parts.box("line"):
            self._send = parts.button(
                "Replay the repaired record", self._replay, kind="main-action", icon="replay"
            )
            self._as_it_is = parts.button("Replay as it is", self._replay_plain)
            parts.button("Discard", self._discard, kind="danger")
        self._send.disable()
        ui.timer(0, self.try_it, once=True)

    @property
    def _one(self) -> Selection:
        return Selection(self._letter.row.owner, (self._letter.row.id,))

    async def try_it(self) -> None:
        self._turn += 1
        mine = self._turn
        try:
            trial = await call(
                self._face.backend.desk.dry_run,
                self._letter.row.owner,
                self._letter.row.id,
                self.editor.value.encode(),
                self._form,
            )
        except Exception as error:
            trial = Trial(False, None, message=str(error), tried=False)
        if mine == self._turn:  # an answer that another one has overtaken says nothing
            self._say(trial)

    def _say(self, trial: Trial) -> None:
        parts.dress(
            self._verdict,
            "verdict notice " + ("good" if trial.accepted else "bad" if trial.tried else "info"),
        )
        self._verdict.set_text(verdict(trial))
        self._row.set_text(trial.row or "")
        self._row.set_visibility(trial.accepted and bool(trial.row))
        self.editor.underline(*([trial.text_span] if trial.text_span and not trial.accepted else []))
        changed = self.editor.value != self._begins[self._form]
        self._send.set_enabled(changed and (trial.accepted or not trial.tried))

    def _format(self) -> None:
        try:
            made = json.dumps(json.loads(self.editor.value), indent=2, ensure_ascii=False)
        except ValueError:
            return
        self.editor.set(made)

    async def _written(self, form: EditForm) -> None:
        self._form = form
        await self._reset(self._begins[form])

    async def _reset(self, text: str) -> None:
        self.editor.set(text)
        await self.try_it()

    async def _replay(self) -> None:
        if await jobs.replay(
            self._face, self._one, "this letter", value=self.editor.value.encode(), form=self._form, ask=False
        ):
            await self._changed()

    async def _replay_plain(self) -> None:
        if await jobs.replay(self._face, self._one, "this letter", ask=False):
            await self._changed()

    async def _discard(self) -> None:
        if await jobs.discard(self._face, self._one, "this letter"):
            await self._changed()


def verdict(trial: Trial) -> str:
    """What the source would say, in a line."""
    if not trial.tried:
        return trial.message or "Nobody here can decode it."
    if trial.accepted:
        return "The source accepts it. This row would be in its views:"
    if trial.kind is None and trial.message:
        return f"It cannot be written: {trial.message}"
    return f"The source refuses it: {trial.message or trial.kind or 'it does not decode'}"
