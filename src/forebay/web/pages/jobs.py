"""Replays: how far they are, what became of what they sent, and a way to stop them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nicegui import ui

from forebay.deadletter.desk_views import EditForm, ReplayStatus, Selection
from forebay.deadletter.replacing import Replacement
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call, say

SHOWN: Final = 3
EVERY_S: Final = 1.0
_FATES: Final = (("in_view", "in the view", "good"), ("waiting", "on the way", "info"), ("failed_again", "failed again", "bad"), ("sent", "sent", "info"))  # fmt: skip


@dataclass(frozen=True)
class ReplayAsked:
    """How letters are sent: at most so many a second, to another topic than the one that each came from."""

    rate: float | None = None
    to: str | None = None


class Jobs:
    """The newest replays, in a panel that is there as long as there are some."""

    def __init__(self, face: Face, owner: str | None = None) -> None:
        self._face, self._owner = face, owner
        self._shown: tuple[ReplayStatus, ...] | None = None
        with parts.panel("Replays") as self._panel:
            self._panel._props["aria-live"] = "polite"
            self._list = ui.element("div").classes("stack")
        self._panel.set_visibility(False)

    async def refresh(self) -> None:
        jobs = await call(self._face.backend.desk.jobs)
        mine = tuple(job for job in jobs if self._owner in (None, job.owner))[:SHOWN]
        if mine == self._shown:
            return
        self._shown = mine
        self._panel.set_visibility(bool(mine))
        self._list.clear()
        with self._list:
            for job in mine:
                self._job(job)

    def _job(self, job: ReplayStatus) -> None:
        with parts.box("job"):
            with parts.box("line tight"):
                parts.badge(
                    words.said(job.state), words.tone(job.state) if job.state != "running" else "info"
                )
                parts.text(
                    f"{words.count(job.sent)} of {words.many(job.total, 'letter')} of {job.source} sent to {job.target}",
                    "anywhere",
                    "span",
                )
                outcomes(job.fates)
                if job.failed:
                    parts.badge(f"{words.count(job.failed)} could not be sent", "bad")
                if job.left:
                    parts.badge(f"{words.count(job.left)} left as they are", "warn")
            if job.state == "running":
                parts.button(
                    "Stop",
                    lambda id=job.id: self._stop(id),
                    kind="danger",
                    icon="stop",
                    disabled=self._face.read_only,
                )
            else:
                parts.text(f"{words.ago(job.ended_ms)}, by {job.actor}", "muted small")
            if job.state in ("running", "stopping"):
                _meter(job)
            for id, why in job.problems[:3]:
                parts.text(f"{id}: {why}", "bad small anywhere").style("grid-column: 1 / -1")
            if job.error:
                parts.text(" ".join(filter(None, (job.error, job.remedy))), "bad small anywhere").style(
                    "grid-column: 1 / -1"
                )

    async def _stop(self, id: str) -> None:
        if await self._face.attempt(self._face.backend.desk.stop, id, actor=self._face.actor) is not None:
            say("It stops between two chunks. What is sent is settled; the rest stays open.")


def _meter(job: ReplayStatus) -> None:
    with parts.box("meter") as meter:
        meter.style("grid-column: 1 / -1")
        meter._props.update({
            "role": "progressbar", "aria-label": "Letters sent", "aria-valuemin": 0, "aria-valuemax": job.total, "aria-valuenow": job.done,
        })  # fmt: skip
        ui.element("div").style(f"width: {100 * job.done / max(1, job.total):.1f}%")


def outcomes(fates: Mapping[str, int]) -> None:
    """What became of replayed records."""
    for fate, said, tone in _FATES:
        if fates.get(fate):
            parts.badge(f"{words.count(fates[fate])} {said}", tone)


async def replay(
    face: Face,
    selection: Selection,
    many: str,
    *,
    value: bytes | None = None,
    form: EditForm = "text",
    patch: str | None = None,
    replace: Sequence[Replacement] = (),
    ask: bool = True,
) -> bool:
    """Ask how fast and where to, and send. Whether it has begun."""
    how = ReplayAsked()
    if ask:
        answer = await _ask(many, patch is not None or bool(replace))
        if answer is None:
            return False
        how = answer
    job = await face.attempt(
        face.backend.desk.replay, selection, actor=face.actor,
        value=value, form=form, patch=patch, replace=replace, rate=how.rate, to=how.to,
    )  # fmt: skip
    if job is None:
        return False
    ui.run_javascript("window.scrollTo({top: 0})")  # its progress stands there
    return True


async def _ask(many: str, patched: bool) -> ReplayAsked | None:
    """None: do not."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        parts.text(f"Replay {many}?", tag="h2")
        how = "Each is repaired and sent" if patched else "Their own bytes are sent"
        parts.text(
            f"{how} to the topic that it came from, once. It can be stopped; what is not sent stays open.",
            "muted",
        )
        rate = ui.number("At most so many a second (empty: no limit)", min=0.1, format="%g")
        to = ui.input("To another topic (empty: the one that each came from)")
        for field in (rate, to):
            field.props("outlined dense").style("width: 100%")

        def answer() -> None:
            dialog.submit(ReplayAsked(float(rate.value or 0) or None, str(to.value or "").strip() or None))

        with parts.box("line"):
            ui.space()
            parts.button("Cancel", lambda: dialog.submit(None))
            parts.button("Replay", answer, kind="main-action", icon="replay")
    given = await dialog
    dialog.delete()
    return given if isinstance(given, ReplayAsked) else None


async def discard(face: Face, selection: Selection, many: str) -> bool:
    """Ask for a reason, and discard. Whether it is done."""
    reason = await parts.confirm(
        f"Discard {many}?", "They are marked as not wanted. Their bytes stay where they are, and a discard can be taken back.",
        "Discard", danger=True, reason="Reason",
    )  # fmt: skip
    if reason is None:
        return False
    done = await face.attempt(face.backend.desk.discard, selection, reason, actor=face.actor)
    if done is not None:
        say(f"{words.many(done, 'letter')} discarded.")
    return done is not None


async def reopen(face: Face, selection: Selection) -> bool:
    """Take a discard back."""
    done = await face.attempt(face.backend.desk.reopen, selection, actor=face.actor)
    if done is not None:
        say(f"{words.many(done, 'letter')} open again.")
    return done is not None
