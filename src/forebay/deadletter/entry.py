"""A letter with what became of it, and the columns that SQL, `--where` and `-o json` see of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from forebay.deadletter.letter import REPLAY_ID, REPLAYED_FROM, Letter
from forebay.deadletter.outcomes import Identity, Outcome, identity_text, parse_identity

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Entry:
    """One letter as its reader gives it."""

    letter: Letter
    outcome: Outcome

    @property
    def id(self) -> str:
        """`topic/partition/offset` of the record: what `show` takes."""
        return identity_text(self.letter.identity)

    @property
    def identity(self) -> Identity:
        return self.letter.identity

    @property
    def replayed_from(self) -> str | None:
        """The id of the letter that this one's record is a replay of, if it is one."""
        told = replayed_from(self.letter)
        return identity_text(told[1]) if told else None

    def row(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The columns of these names, or all of them."""
        return {name: COLUMNS[name][1](self) for name in names or COLUMNS}


def replayed_from(letter: Letter) -> tuple[str, Identity] | None:
    """If its record was a replay: of which one, and of which letter's record."""
    told = {name: data for name, data in letter.headers if name in (REPLAY_ID, REPLAYED_FROM) and data}
    if len(told) < 2:
        return None
    try:
        return told[REPLAY_ID].decode(), parse_identity(told[REPLAYED_FROM].decode())
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
    return identity_text((made.target_topic, made.target_partition, made.target_offset))


COLUMNS: dict[str, tuple[pa.DataType, Callable[[Entry], Any]]] = {
    "source": (pa.string(), lambda e: e.letter.source),
    "topic": (pa.string(), lambda e: e.letter.topic),
    "partition": (pa.int32(), lambda e: e.letter.partition),
    "offset": (pa.int64(), lambda e: e.letter.offset),
    "timestamp": (_TIME, lambda e: moment(e.letter.timestamp_ms)),
    "failed_at": (_TIME, lambda e: moment(e.letter.failed_at_ms)),
    "error_kind": (pa.string(), lambda e: e.letter.kind),
    "error_message": (pa.string(), lambda e: e.letter.message),
    "field": (pa.string(), lambda e: e.letter.field),
    "stage": (pa.string(), lambda e: e.letter.stage),
    "state": (pa.string(), lambda e: str(e.outcome.state)),
    "state_at": (_TIME, lambda e: moment(e.outcome.at_ms)),
    "state_reason": (pa.string(), lambda e: e.outcome.reason),
    "replay_id": (pa.string(), lambda e: e.outcome.replay_id),
    "replayed_to": (pa.string(), _target),
    "replayed_from": (pa.string(), lambda e: e.replayed_from),
    "key": (pa.string(), lambda e: text_of(e.letter.key)),
    "value": (pa.string(), lambda e: text_of(e.letter.value)),
    "key_bytes": (pa.binary(), lambda e: e.letter.key),
    "value_bytes": (pa.binary(), lambda e: e.letter.value),
    "headers": (pa.map_(pa.string(), pa.binary()), lambda e: list(dict(e.letter.headers).items())),
    "size": (pa.int64(), lambda e: e.letter.size),
    "complete": (pa.bool_(), lambda e: e.letter.whole),
    "id": (pa.string(), lambda e: e.id),
}
"""Name, type and value of each column of `forebay_catalog.dead_letters`, in order."""

SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])


def batch_of(entries: Sequence[Entry]) -> pa.RecordBatch:
    columns = [pa.array([value(e) for e in entries], kind) for kind, value in COLUMNS.values()]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
