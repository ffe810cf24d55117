"""A whole group: a patch for each of its letters, previewed on samples, and what is done with all of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui import ui

from forebay.deadletter.desk_views import LetterGroup, Preview, Selection
from forebay.errors import ForebayError
from forebay.web.pages import jobs, parts, words
from forebay.web.pages.editor import Editor
from forebay.web.pages.frame import Face, call
from forebay.web.pages.letter_panel import verdict


class GroupPanel:
    def __init__(self, face: Face, group: LetterGroup, changed: Callable[[], Awaitable[Any]]) -> None:
        self._face, self._group, self._changed = face, group, changed
        self._turn = 0
        with parts.box("stack"):
            parts.text(
                "A JSON merge patch: its fields replace those of each record, null takes one out. Nothing is sent before you say so.",
                "muted small",
            )
            self.editor = Editor("JSON merge patch", _first_patch(group), "JSON", on_change=self.preview)
            self._problem = parts.text("", "notice bad")
            self._problem.set_visibility(False)
            self._summary = parts.text("", "notice")
            self._summary._props["role"] = "status"
            self._samples = ui.element("div").classes("stack")
            with parts.box("line"):
                self._patched = parts.button(
                    "Replay all, patched",
                    self._replay_patched,
                    kind="main-action",
                    icon="replay",
                    disabled=True,
                )
                self._plain = parts.button("Replay all as they are", self._replay, disabled=face.read_only)
                self._discard_all = parts.button(
                    "Discard all", self._discard, kind="danger", disabled=face.read_only
                )

    @property
    def _all(self) -> Selection:
        return Selection(self._group.owner, group=self._group.id)

    @property
    def _many(self) -> str:
        return f"all {words.many(self._group.counts.get('open', 0), 'open letter')} of this group"

    def update(self, group: LetterGroup) -> None:
        self._group = group
        left = group.counts.get("open", 0)
        self._plain.set_enabled(left > 0 and not self._face.read_only)
        self._discard_all.set_enabled(left > 0 and not self._face.read_only)

    async def preview(self) -> None:
        """Try the patch on some letters."""
        self._turn += 1
        mine = self._turn
        patch = self.editor.value.strip()
        try:
            found: Sequence[Preview] = (
                await call(self._face.backend.desk.preview, self._group.id, patch) if patch else ()
            )
            wrong = ""
        except ForebayError as error:
            found, wrong = (), f"{error.message}. {error.remedy or ''}"
        if mine != self._turn:
            return
        self._problem.set_text(wrong)
        self._problem.set_visibility(bool(wrong))
        self._samples.clear()
        good = sum(each.trial is not None and each.trial.accepted for each in found)
        self._summary.set_visibility(bool(found))
        parts.dress(self._summary, "notice " + ("good" if found and good == len(found) else "warn"))
        self._summary.set_text(f"{good} of {words.many(len(found), 'sample')} would be accepted.")
        with self._samples:
            for each in found[:3]:
                _sample(each)
        usable = any(each.after is not None for each in found) and self._group.counts.get("open", 0) > 0
        self._patched.set_enabled(usable and not self._face.read_only)

    async def _replay_patched(self) -> None:
        if await jobs.replay(self._face, self._all, self._many, patch=self.editor.value):
            await self._changed()

    async def _replay(self) -> None:
        if await jobs.replay(self._face, self._all, self._many):
            await self._changed()

    async def _discard(self) -> None:
        if await jobs.discard(self._face, self._all, self._many):
            await self._changed()


def _first_patch(group: LetterGroup) -> str:
    """The field at fault, to be filled in."""
    return json.dumps({group.field: None}, ensure_ascii=False) if group.field else "{}"


def _sample(each: Preview) -> None:
    with parts.box("stack tight"):
        with parts.box("line tight"):
            parts.text(each.id, "mono small muted anywhere", "span")
            if each.trial is not None:
                parts.badge("accepted" if each.trial.accepted else "refused" if each.trial.tried else "not tried",
                            "good" if each.trial.accepted else "bad" if each.trial.tried else "info")  # fmt: skip
        if each.problem:
            parts.text(each.problem, "bad small anywhere")
        if each.before is not None:
            parts.Bytes("Before", [{"text": each.before[:400], "dim": True}])
        if each.after is not None:
            parts.Bytes("After", [{"text": each.after[:400]}])
        if each.trial is not None and not each.trial.accepted:
            parts.text(verdict(each.trial), "bad small anywhere")
