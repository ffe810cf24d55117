"""A letter with what became of it, and the columns that SQL, `--where` and `-o json` see of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import REPLAY_ID, REPLAYED_FROM, Letter
from forebay.deadletter.outcomes import Outcome

if TYPE_CHECKING:  # listing letters does without it
    import pyarrow as pa

    from forebay.deadletter.masked import LetterMask

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = "timestamp[us, tz=UTC]"


@dataclass(frozen=True, repr=False)
class Entry:
    """One letter with what became of it: what iterating over `DeadLetters` gives."""

    letter: Letter  # with its true bytes, also where the source masks some
    outcome: Outcome
    mask: LetterMask | None = None

    def __repr__(self) -> str:
        return f"<{self.outcome.state} {repr(self.shown)[1:]}"

    @cached_property
    def shown(self) -> Letter:
        """The letter as it may be shown: without the values that are masked."""
        return self.mask.letter(self.letter) if self.mask else self.letter

    @property
    def id(self) -> str:
        """`topic/partition/offset` of the record: what `show` takes."""
        return self.letter.identity.place

    @property
    def identity(self) -> Identity:
        """Which record it is about, with the topic's id where that is known."""
        return self.letter.identity

    @property
    def replayed_from(self) -> str | None:
        """The id of the letter that this one's record is a replay of, if it is one."""
        replayed = replayed_from(self.letter)
        return replayed[1].place if replayed else None

    def row(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The columns of these names, or all of them."""
        return {name: COLUMNS[name][1](self) for name in names or COLUMNS}


Condition = Callable[[Entry], "bool | None"]
"""Whether a letter is wanted; None where SQL says NULL, which is not selected."""


def everything(entry: Entry) -> bool | None:
    """The condition of no WHERE."""
    return True


def replayed_from(letter: Letter) -> tuple[str, Identity] | None:
    """If its record was a replay: of which one, and of which letter's record."""
    replayed = {name: data for name, data in letter.headers if name in (REPLAY_ID, REPLAYED_FROM) and data}
    if len(replayed) < 2:
        return None
    try:
        return replayed[REPLAY_ID].decode(), Identity.parse(replayed[REPLAYED_FROM].decode())
    except ValueError:
        return None  # somebody else's header of that name


def text_of(data: bytes | None) -> str | None:
    """The bytes as text, where they are: UTF-8 without control characters. NULL otherwise, and for NULL."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def _target(entry: Entry) -> str | None:
    made = entry.outcome
    if made.target_topic is None or made.target_partition is None or made.target_offset is None:
        return None
    return Identity(made.target_topic, made.target_partition, made.target_offset).place


COLUMNS: dict[str, tuple[str, Callable[[Entry], Any]]] = {
    "source": ("string", lambda e: e.letter.source),
    "topic": ("string", lambda e: e.letter.topic),
    "partition": ("int32", lambda e: e.letter.partition),
    "offset": ("int64", lambda e: e.letter.offset),
    "timestamp": (TIME, lambda e: moment(e.letter.timestamp_ms)),
    "failed_at": (TIME, lambda e: moment(e.letter.failed_at_ms)),
    "error_kind": ("string", lambda e: e.letter.kind),
    "error_message": ("string", lambda e: e.shown.message),
    "field": ("string", lambda e: e.letter.field),
    "stage": ("string", lambda e: e.letter.stage),
    "state": ("string", lambda e: str(e.outcome.state)),
    "state_at": (TIME, lambda e: moment(e.outcome.at_ms)),
    "state_reason": ("string", lambda e: e.outcome.reason),
    "replay_id": ("string", lambda e: e.outcome.replay_id),
    "replayed_to": ("string", _target),
    "replayed_from": ("string", lambda e: e.replayed_from),
    "key": ("string", lambda e: text_of(e.shown.key)),
    "value": ("string", lambda e: text_of(e.shown.value)),
    "key_bytes": ("binary", lambda e: e.shown.key),
    "value_bytes": ("binary", lambda e: e.shown.value),
    "headers": ("map<string, binary>", lambda e: list(dict(e.shown.headers).items())),
    "size": ("int64", lambda e: e.letter.size),
    "complete": ("bool", lambda e: e.letter.whole),
    "id": ("string", lambda e: e.id),
    "topic_id": ("string", lambda e: e.letter.topic_id or None),
    "stacktrace": ("string", lambda e: e.shown.stacktrace),
}
"""Name, type (as Arrow writes it) and value of each column of `forebay_catalog.dead_letters`, in order."""


def schema() -> pa.Schema:
    """The columns' types."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "binary": pa.binary(),
        "map<string, binary>": pa.map_(pa.string(), pa.binary()),
        TIME: pa.timestamp("us", "UTC"),
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, (kind, _) in COLUMNS.items()])


def batch_of(entries: Sequence[Entry]) -> pa.RecordBatch:
    import pyarrow as pa

    types = schema()
    columns = [
        pa.array([value(e) for e in entries], field.type)
        for field, (_, value) in zip(types, COLUMNS.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=types)
