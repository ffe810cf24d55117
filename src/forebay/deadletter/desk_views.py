"""What the dead-letter desk shows (`desk.py`): plain values, for a page, JSON or a terminal.

What is masked is masked in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OwnerKind = Literal["source", "forebay", "connect", "spring", "streams"]
"""Who wrote letters: a source of this home; a pool, agent or source elsewhere; Kafka Connect; Spring; Kafka Streams."""

StateFilter = Literal["open", "replayed", "failed_again", "discarded", "all"]

Fate = Literal["open", "discarded", "waiting", "in_view", "failed_again", "sent"]
"""What became of a letter's record.

`waiting`: replayed, and the source has not read it yet. `in_view`: replayed, every view over the source has read it,
and it was not refused. `sent`: replayed, and nobody here can tell more (another topic, no source of this home).
"""


EditForm = Literal["text", "json", "hex"]
"""How an edited value is written: as it is; as JSON, which is encoded in the record's schema where the format is no text;
in hexadecimal.
"""


@dataclass(frozen=True)
class IndexState:
    """How far the index of one owner's letters is. `behind` is 0 once it has all."""

    indexed: int  # records of the letter topic that were looked at
    behind: int  # records that are still to be looked at; -1 if that is not known yet
    building: bool
    looked_at_ms: int | None  # when the end of the letters was last asked for
    error: str | None = None  # why the letters cannot be read now
    left_out: int = 0  # letters, the oldest, that are too many for the index of this home

    @property
    def share(self) -> float:
        """From 0 to 1, for a progress bar."""
        total = self.indexed + max(self.behind, 0)
        return 1.0 if self.behind == 0 else (self.indexed / total if total else 0.0)


@dataclass(frozen=True)
class OwnerView:
    """Somebody who has letters. `key` is what the other methods take as `owner`."""

    key: str
    name: str
    kind: OwnerKind
    place: str  # "topic 'orders-dlq'" or a path
    counts: Mapping[str, int]  # by state
    kept_out: int  # bad records without a letter, because of the rate limit: `recover` writes them
    masked: tuple[str, ...]  # the patterns of its `mask`
    index: IndexState


@dataclass(frozen=True)
class LetterGroup:
    """Letters with the same fault."""

    id: str
    owner: str
    source: str  # the owner's name
    kind: str
    field: str | None
    pattern: str  # the message, with placeholders for what differs: `<text>`, `<number>`, …
    letters: int  # in the states that were asked for
    counts: Mapping[str, int]  # by state, all of them
    first_ms: int
    last_ms: int
    bucket_ms: int  # how much time a bucket is
    buckets_from_ms: int  # where the first bucket begins
    buckets: tuple[
        int, ...
    ]  # letters by time, for a sparkline: the same buckets for all groups of one answer
    samples: tuple[str, ...]  # ids, the newest first


@dataclass(frozen=True)
class LetterGroups:
    """An answer of `groups()`: the largest first."""

    groups: tuple[LetterGroup, ...]
    index: IndexState  # of the one that is furthest behind


@dataclass(frozen=True)
class LetterRow:
    """A line of a list of letters."""

    id: str  # topic/partition/offset[/topic id]: what the other methods take
    owner: str
    group: str
    kind: str
    field: str | None
    pattern: str
    topic: str
    partition: int
    offset: int
    failed_at_ms: int
    timestamp_ms: int | None
    size: int
    state: str
    state_at_ms: int | None
    fate: Fate


@dataclass(frozen=True)
class LetterPage:
    """Some letters, the newest first. `searched` is how many a search has looked at: fewer than `total` if bounded."""

    letters: tuple[LetterRow, ...]
    total: int  # that match, as far as is known
    page: int  # from 0
    size: int
    searched: int | None
    index: IndexState


@dataclass(frozen=True)
class HexLine:
    """16 bytes of a dump; `marked` are places in the line, 0 to 15, that are at fault."""

    at: int
    hex: str
    text: str
    marked: tuple[int, ...]


@dataclass(frozen=True)
class Payload:
    """A key or a value as it may be shown. What is not shown is None, and `note` says why."""

    size: int  # bytes of the whole; -1: not known
    text: str | None  # if it is text; masked values as •••; bounded by TEXT_SHOWN
    text_span: tuple[int, int] | None  # characters of `text`, or of `decoded`, that are at fault
    decoded: (
        str | None
    )  # JSON of the record, where the format is no text and it decodes; if masked, of its row
    hex: tuple[HexLine, ...]  # bounded, around what is at fault; none where something is masked
    hidden: int  # bytes that the dump leaves out
    byte_span: tuple[int, int] | None  # bytes of the value that are at fault
    editable: (
        bool  # whether it can be edited: what is shown is all of it, or it can only be replaced as a whole
    )
    note: str | None
    form: EditForm = "text"  # what an edit of it is written in


@dataclass(frozen=True)
class HeaderView:
    """A header of the record; `text` if it is text, else `hex`."""

    name: str
    text: str | None
    hex: str | None
    masked: bool


@dataclass(frozen=True)
class LetterEvent:
    """Something that became of a letter."""

    at_ms: int
    state: str
    reason: str | None
    actor: str | None
    replay_id: str | None
    target: str | None  # topic/partition/offset of the replayed record


@dataclass(frozen=True)
class LetterView:
    """All that is known about one letter."""

    row: LetterRow
    message: str
    stage: Literal["KEY", "VALUE"]
    key: Payload | None  # None: the record has none
    value: Payload | None
    headers: tuple[HeaderView, ...]
    tried: tuple[tuple[str, str], ...]  # what, and with what: format, registry, columns
    now: str  # what decoding it says today
    remedy: str
    fate_reason: str  # how `row.fate` is known, in words
    stacktrace: str | None
    replayed_from: str | None  # the id of the letter that this one's record is a replay of
    history: tuple[LetterEvent, ...]  # the oldest first
    masked: bool


@dataclass(frozen=True)
class Trial:
    """What the source would say to a value. `row` is JSON, masked."""

    accepted: bool
    row: str | None
    kind: str | None = None
    message: str | None = None
    field: str | None = None
    text_span: tuple[int, int] | None = None  # characters of the text that was tried
    byte_span: tuple[int, int] | None = None
    tried: bool = True  # False: nobody here can decode it (no source of this home); `message` says why
    took_ms: float = 0.0


@dataclass(frozen=True)
class Preview:
    """What a patch makes of one letter. `problem` if it makes nothing of it."""

    id: str
    before: str | None
    after: str | None
    trial: Trial | None
    problem: str | None = None


@dataclass(frozen=True)
class Selection:
    """Letters that something is to be done with: by their ids, or all of a group, or all of an owner.

    Only open ones are replayed or discarded, only discarded ones reopened; others are left as they are.
    """

    owner: str
    ids: tuple[str, ...] = ()
    group: str | None = None
    all: bool = False


@dataclass(frozen=True)
class ReplayStatus:
    """How far a replay is. Letters that were not sent are open."""

    id: str
    owner: str
    source: str
    actor: str
    target: str
    state: Literal["running", "stopping", "stopped", "done", "failed"]
    total: int  # letters that were selected and open when it began
    done: int  # looked at
    sent: int
    failed: int  # could not be sent
    left: int  # the repair had nothing for them
    problems: tuple[tuple[str, str], ...]  # the first of those that could not be sent, with why
    error: str | None  # why it ended before its time
    remedy: str | None
    began_ms: int
    ended_ms: int | None
    fates: Mapping[str, int]  # of what was sent: by Fate, as of now
