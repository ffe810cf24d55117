"""`/api/letters`: the dead-letter desk over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from forebay.deadletter.desk_views import (
    EditForm,
    IndexState,
    LetterGroup,
    LetterGroups,
    LetterPage,
    LetterView,
    OwnerView,
    Preview,
    ReplayStatus,
    Selection,
    Trial,
)
from forebay.deadletter.replacing import Replacement
from forebay.errors import BadRequestError
from forebay.web.backend import Backend

State = Literal["open", "replayed", "failed_again", "discarded", "all"]
Owner = Annotated[str, Query(min_length=1, max_length=1000)]
Id = Annotated[str, Query(min_length=1, max_length=1000)]
MOST_IDS = 10_000


class LetterBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Chosen(LetterBody):
    """Letters by their ids, or all open ones of a group, or of an owner."""

    owner: str = Field(min_length=1, max_length=1000)
    ids: list[str] = Field(default_factory=list, max_length=MOST_IDS)
    group: str | None = Field(None, max_length=1000)
    all: bool = False

    def selection(self) -> Selection:
        if sum((bool(self.ids), self.group is not None, self.all)) != 1:
            raise BadRequestError("which letters?", remedy="give one of: ids, group, all")
        return Selection(self.owner, tuple(self.ids), self.group, self.all)


class ReplacementWanted(LetterBody):
    """In one field of each record, what a regular expression (RE2) matches becomes another text."""

    field: str = Field(min_length=1, max_length=1000, description="such as price, or items[*].price")
    pattern: str = Field(min_length=1, max_length=10_000)
    replacement: str = Field("", max_length=10_000, description=r"\1 is what the first group matched")

    def given(self) -> Replacement:
        return Replacement(self.field, self.pattern, self.replacement)


Form = Annotated[
    EditForm, Field(description="how a value is written: text, json (encoded in the record's schema), hex")
]
Replacements = Annotated[list[ReplacementWanted], Field(default_factory=list, max_length=50)]


class ReplayWanted(Chosen):
    value: str | None = Field(None, max_length=4_000_000, description="an edited value, for one letter")
    form: Form = "text"
    patch: str | None = Field(None, max_length=1_000_000, description="a JSON merge patch (RFC 7386)")
    replace: Replacements
    rate: float | None = Field(None, gt=0, le=1e9, description="records a second")
    to: str | None = Field(
        None, min_length=1, max_length=249, description="a topic; if not given, the one that each came from"
    )


class DiscardWanted(Chosen):
    reason: str = Field(min_length=1, max_length=1000)


class TrialWanted(LetterBody):
    owner: str = Field(min_length=1, max_length=1000)
    id: str = Field(min_length=1, max_length=1000)
    value: str = Field(max_length=4_000_000)
    form: Form = "text"


class PreviewWanted(LetterBody):
    group: str = Field(min_length=1, max_length=1000)
    patch: str | None = Field(None, max_length=1_000_000)
    replace: Replacements
    samples: int = Field(5, ge=1, le=50)


class WatchWanted(LetterBody):
    topic: str = Field(min_length=1, max_length=249)
    brokers: str | None = Field(None, max_length=2000)
    options: dict[str, str] = Field(default_factory=dict, max_length=50)


class LetterCount(BaseModel):
    letters: int


class WatchedTopic(BaseModel):
    topic: str
    brokers: str | None


def letters_router(backend: Backend) -> APIRouter:
    router = APIRouter(prefix="/api/letters")
    _add_looking(router, backend)
    _add_changing(router, backend)
    return router


def _add_looking(router: APIRouter, backend: Backend) -> None:
    @router.get("")
    def owners() -> list[OwnerView]:
        """Who has letters, and how many in which state."""
        return list(backend.desk.owners())

    @router.get("/groups")
    def groups(
        owner: Annotated[str | None, Query(max_length=1000)] = None,
        state: State = "open",
        since_ms: Annotated[int | None, Query(ge=0, le=253_402_300_799_999)] = None,
        buckets: Annotated[int, Query(ge=1, le=200)] = 30,
    ) -> LetterGroups:
        """Letters with the same fault: by source, kind, field and message."""
        return backend.desk.groups(owner, state, since_ms, buckets)

    @router.get("/group")
    def group(id: Id) -> LetterGroup:
        """One group."""
        return backend.desk.group(id)

    @router.get("/list")
    def letters(
        group: Annotated[str | None, Query(max_length=1000)] = None,
        state: State = "open",
        page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        size: Annotated[int, Query(ge=1, le=1000)] = 50,
        search: Annotated[str | None, Query(max_length=1000)] = None,
        owner: Annotated[str | None, Query(max_length=1000)] = None,
    ) -> LetterPage:
        """Some letters, the newest first."""
        return backend.desk.letters(group, state, page, size, search, owner)

    @router.get("/letter")
    def letter(owner: Owner, id: Id) -> LetterView:
        """All about one letter: bytes, headers, where decoding failed, what became of it."""
        return backend.desk.letter(owner, id)

    @router.post("/refresh")
    def refresh(
        owner: Annotated[str | None, Query(max_length=1000)] = None,
        timeout: Annotated[float, Query(ge=0, le=60)] = 10.0,
    ) -> IndexState:
        """Wait until the index has all letters that there are now."""
        return backend.desk.refresh(owner, timeout)

    @router.post("/dry-run")
    def dry_run(wanted: TrialWanted) -> Trial:
        """Whether an edited value would decode."""
        return backend.desk.dry_run(wanted.owner, wanted.id, wanted.value.encode(), wanted.form)

    @router.post("/preview")
    def preview(wanted: PreviewWanted) -> list[Preview]:
        """What replacements and a patch make of some letters of a group."""
        given = [each.given() for each in wanted.replace]
        return list(backend.desk.preview(wanted.group, wanted.patch, wanted.samples, given))

    @router.get("/jobs")
    def jobs() -> list[ReplayStatus]:
        """Replays, the newest first."""
        return list(backend.desk.jobs())

    @router.get("/jobs/{id}")
    def job(id: str) -> ReplayStatus:
        """How far a replay is."""
        return backend.desk.job(id).status

    @router.get("/watched")
    def watched() -> list[WatchedTopic]:
        """Topics whose letters are looked at besides those of the home's sources."""
        return [WatchedTopic(topic=topic, brokers=brokers) for topic, brokers in backend.desk.watched()]


def _add_changing(router: APIRouter, backend: Backend) -> None:
    def actor(request: Request) -> str:
        return str(getattr(request.state, "actor", "local"))

    @router.post("/replay")
    def replay(wanted: ReplayWanted, request: Request) -> ReplayStatus:
        """Send letters again, in the background; `/api/letters/jobs/{id}` says how far it is."""
        value = None if wanted.value is None else wanted.value.encode()
        job = backend.desk.replay(
            wanted.selection(),
            actor=actor(request),
            value=value,
            form=wanted.form,
            patch=wanted.patch,
            replace=[each.given() for each in wanted.replace],
            rate=wanted.rate,
            to=wanted.to,
        )
        return job.status

    @router.post("/jobs/{id}/stop")
    def stop(id: str, request: Request) -> ReplayStatus:
        """Stop a replay between two chunks."""
        return backend.desk.stop(id, actor=actor(request))

    @router.post("/discard")
    def discard(wanted: DiscardWanted, request: Request) -> LetterCount:
        """Put open letters away, with a reason."""
        count = backend.desk.discard(wanted.selection(), wanted.reason, actor=actor(request))
        return LetterCount(letters=count)

    @router.post("/reopen")
    def reopen(wanted: Chosen, request: Request) -> LetterCount:
        """Take a discard back."""
        return LetterCount(letters=backend.desk.reopen(wanted.selection(), actor=actor(request)))

    @router.post("/watched")
    def watch(wanted: WatchWanted, request: Request) -> WatchedTopic:
        """Look at the letters of another topic, too."""
        backend.desk.watch_topic(wanted.topic, wanted.brokers, actor(request), **wanted.options)
        return WatchedTopic(topic=wanted.topic, brokers=wanted.brokers)

    @router.delete("/watched")
    def forget(
        topic: Annotated[str, Query(min_length=1, max_length=249)],
        request: Request,
        brokers: Annotated[str | None, Query(max_length=2000)] = None,
    ) -> WatchedTopic:
        """Do not look there any more; the letters stay."""
        backend.desk.forget_topic(topic, brokers, actor(request))
        return WatchedTopic(topic=topic, brokers=brokers)
