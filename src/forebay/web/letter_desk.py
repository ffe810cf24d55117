"""The dead-letter desk as the dashboard has it: changes are written into the audit log, or refused; payloads may be hidden."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from forebay.errors import ForebayError, OptionConflictError
from forebay.web.ground import Ground

if TYPE_CHECKING:
    from forebay.deadletter.desk import LetterDesk, ReplayJob
    from forebay.deadletter.desk_views import (
        EditForm,
        Fate,
        IndexState,
        LetterGroup,
        LetterGroups,
        LetterPage,
        LetterView,
        OwnerView,
        Payload,
        Preview,
        ReplayStatus,
        Selection,
        StateFilter,
        Trial,
    )
    from forebay.deadletter.replacing import Replacement

HIDDEN = "payloads are hidden (--hide-payloads)"


class GuardedDesk:
    """The same methods as `LetterDesk`, which says what they do."""

    def __init__(self, ground: Ground, desk: LetterDesk) -> None:
        self._ground = ground
        self._desk = desk

    # -- looking -------------------------------------------------------------------------------------------

    def owners(self) -> tuple[OwnerView, ...]:
        return self._desk.owners()

    def watched(self) -> tuple[tuple[str, str | None], ...]:
        return self._desk.watched()

    def refresh(
        self,
        owner: str | None = None,
        timeout: float = 30.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexState:
        return self._desk.refresh(owner, timeout, progress)

    def groups(
        self,
        owner: str | None = None,
        state: StateFilter = "open",
        since_ms: int | None = None,
        buckets: int = 30,
    ) -> LetterGroups:
        return self._desk.groups(owner, state, since_ms, buckets)

    def group(self, id: str) -> LetterGroup:
        return self._desk.group(id)

    def letters(
        self,
        group: str | None = None,
        state: StateFilter = "open",
        page: int = 0,
        size: int = 50,
        search: str | None = None,
        owner: str | None = None,
    ) -> LetterPage:
        if search and self._ground.hide_payloads:
            # What is found by what it holds is not hidden.
            raise OptionConflictError("nothing is searched while payloads are hidden", remedy=HIDDEN)
        return self._desk.letters(group, state, page, size, search, owner)

    def letter(self, owner: str, id: str) -> LetterView:
        found = self._desk.letter(owner, id)
        if not self._ground.hide_payloads:
            return found
        return dataclasses.replace(
            found,
            message=found.row.pattern,
            key=_hidden(found.key),
            value=_hidden(found.value),
            headers=tuple(
                dataclasses.replace(each, text=None, hex=None, masked=True) for each in found.headers
            ),
            now="",
            stacktrace=None,
            masked=True,
        )

    def fates(self, owner: str, ids: Sequence[str]) -> Mapping[str, Fate]:
        return self._desk.fates(owner, ids)

    def dry_run(self, owner: str, id: str, value: bytes, form: EditForm = "text") -> Trial:
        found = self._desk.dry_run(owner, id, value, form)
        return dataclasses.replace(found, row=None, message=HIDDEN) if self._ground.hide_payloads else found

    def preview(
        self, group: str, patch: str | None, samples: int = 5, replace: Sequence[Replacement] = ()
    ) -> tuple[Preview, ...]:
        if replace and self._ground.hide_payloads:
            # Whether a pattern matches says what is hidden.
            raise OptionConflictError(
                "no replacement is tried while payloads are hidden", remedy="a merge patch is"
            )
        found = self._desk.preview(group, patch, samples, replace)
        if not self._ground.hide_payloads:
            return found
        return tuple(
            dataclasses.replace(
                each,
                before=None,
                after=None,
                problem=HIDDEN if each.problem else None,
                trial=None
                if each.trial is None
                else dataclasses.replace(each.trial, row=None, message=HIDDEN),
            )
            for each in found
        )

    def jobs(self) -> tuple[ReplayStatus, ...]:
        return self._desk.jobs()

    def job(self, id: str) -> ReplayJob:
        return self._desk.job(id)

    def look_at(self, topic: str, brokers: str | None, **options: str) -> None:
        """Letters of what this process runs itself: looked at without anybody's asking, and in no audit log."""
        self._desk.watch_topic(topic, brokers, **options)

    # -- changing ------------------------------------------------------------------------------------------

    def watch_topic(
        self, topic: str, brokers: str | None = None, actor: str = "local", **options: str
    ) -> None:
        self._ground.check_writable(actor, "watch letters", topic)
        with self._ground.audit.noted(actor, "watch letters", topic):
            self._desk.watch_topic(topic, brokers or self._usual_brokers(), **options)

    def forget_topic(self, topic: str, brokers: str | None = None, actor: str = "local") -> None:
        self._ground.check_writable(actor, "forget letters", topic)
        with self._ground.audit.noted(actor, "forget letters", topic):
            for each in {brokers, brokers or self._usual_brokers()}:
                self._desk.forget_topic(topic, each)

    def _usual_brokers(self) -> str | None:
        """Those of the first source that has some."""
        for name in self._ground.sources.names():
            with suppress(ForebayError):
                if found := self._ground.options(name).given.get("bootstrap.servers"):
                    return str(found)
        return None

    def replay(
        self,
        selection: Selection,
        *,
        actor: str,
        value: bytes | None = None,
        form: EditForm = "text",
        patch: str | None = None,
        replace: Sequence[Replacement] = (),
        rate: float | None = None,
        to: str | None = None,
    ) -> ReplayJob:
        self._ground.check_writable(actor, "replay", selection.owner)
        how = (
            "with an edited value"
            if value is not None
            else "with a patch"
            if patch is not None
            else f"with replacements in {', '.join(each.field for each in replace)}"
            if replace
            else "as they are"
        )
        target = f" to {to}" if to else ""
        with self._ground.audit.noted(
            actor, "replay", selection.owner, f"{_which(selection)}, {how}{target}"
        ) as note:
            job = self._desk.replay(
                selection, actor=actor, value=value, form=form, patch=patch, replace=replace, rate=rate, to=to
            )
            note.message = f"replay {job.id} begun"
            return job

    def stop(self, id: str, *, actor: str) -> ReplayStatus:
        """Stop a replay between two chunks."""
        job = self._desk.job(id)
        self._ground.check_writable(actor, "stop replay", id)
        with self._ground.audit.noted(actor, "stop replay", id):
            job.stop()
            return job.status

    def discard(self, selection: Selection, reason: str, *, actor: str) -> int:
        self._ground.check_writable(actor, "discard", selection.owner)
        about = f"{_which(selection)}: {reason}"
        with self._ground.audit.noted(actor, "discard", selection.owner, about) as note:
            count = self._desk.discard(selection, reason, actor=actor)
            note.message = f"{count} discarded"
            return count

    def reopen(self, selection: Selection, *, actor: str) -> int:
        self._ground.check_writable(actor, "reopen", selection.owner)
        with self._ground.audit.noted(actor, "reopen", selection.owner, _which(selection)) as note:
            count = self._desk.reopen(selection, actor=actor)
            note.message = f"{count} reopened"
            return count

    def close(self) -> None:
        self._desk.close()


def _which(selection: Selection) -> str:
    if selection.ids:
        some = ", ".join(selection.ids[:5])
        return f"{len(selection.ids)} letters: {some}" + (", …" if len(selection.ids) > 5 else "")
    return f"group {selection.group}" if selection.group else "all open letters" if selection.all else "none"


def _hidden(payload: Payload | None) -> Payload | None:
    if payload is None:
        return None
    return dataclasses.replace(
        payload,
        text=None,
        text_span=None,
        decoded=None,
        hex=(),
        hidden=max(0, payload.size),
        editable=False,
        note=HIDDEN,
    )
