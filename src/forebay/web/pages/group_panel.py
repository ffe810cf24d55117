"""A whole group: one repair for all of its letters, previewed on samples, and what is done with them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from nicegui import ui

from forebay.deadletter.desk_views import LetterGroup, Preview, Selection
from forebay.deadletter.replacing import Replacement
from forebay.errors import ForebayError
from forebay.web.pages import jobs, parts, words
from forebay.web.pages.editor import Editor
from forebay.web.pages.frame import Face, call
from forebay.web.pages.letter_panel import verdict

_WAYS: Final = {"replace": "Replace in a field", "patch": "Merge patch"}


class GroupPanel:
    def __init__(self, face: Face, group: LetterGroup, changed: Callable[[], Awaitable[Any]]) -> None:
        self._face, self._group, self._changed = face, group, changed
        self._turn = 0
        with parts.box("stack"):
            self._way = ui.toggle(_WAYS, value="replace" if group.field else "patch", on_change=self._turned)
            self._way.props("no-caps dense unelevated")
            with parts.box("stack tight") as self._replacing:
                parts.text(
                    r"In one field of each record, what a regular expression matches becomes another text; \1 is its first group. The result is a number where the column is one.",
                    "muted small",
                )
                self._field, self._pattern, self._text = (
                    ui.input(label, value=value, on_change=self.preview).props("outlined dense debounce=250")
                    for label, value in (("Field", group.field or ""), ("Pattern", ""), ("Replacement", ""))
                )
            with parts.box("stack tight") as self._patching:
                parts.text(
                    "A JSON merge patch: its fields replace those of each record, null takes one out.",
                    "muted small",
                )
                self.editor = Editor("JSON merge patch", _first_patch(group), "JSON", on_change=self.preview)
            self._show_way()
            self._problem = parts.text("", "notice bad")
            self._problem.set_visibility(False)
            self._summary = parts.text("", "notice")
            self._summary._props["role"] = "status"
            self._samples = ui.element("div").classes("stack")
            with parts.box("line"):
                self._repaired = parts.button(
                    "Replay all, repaired",
                    self._replay_repaired,
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
        """Try the repair on some letters."""
        self._turn += 1
        mine = self._turn
        patch, replace = self._repair
        try:
            found: Sequence[Preview] = ()
            if patch or replace:
                desk = self._face.backend.desk
                found = await call(desk.preview, self._group.id, patch, replace=replace)
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
        self._repaired.set_enabled(usable and not self._face.read_only)

    @property
    def _repair(self) -> tuple[str | None, list[Replacement]]:
        """A patch, or replacements: nothing where nothing was written."""
        if self._way.value == "patch":
            return self.editor.value.strip() or None, []
        field, pattern = str(self._field.value or "").strip(), str(self._pattern.value or "")
        made = Replacement(field, pattern, str(self._text.value or ""))
        return None, [made] if field and pattern else []

    def _show_way(self) -> None:
        self._replacing.set_visibility(self._way.value == "replace")
        self._patching.set_visibility(self._way.value == "patch")

    async def _turned(self) -> None:
        self._show_way()
        await self.preview()

    async def _replay_repaired(self) -> None:
        patch, replace = self._repair
        if await jobs.replay(self._face, self._all, self._many, patch=patch, replace=replace):
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
