"""Why a record was refused, for a person: what was tried, where it failed, what it looks like, what to do."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from forebay.connectors.contract import RejectedRecord, SourceConfig
from forebay.connectors.event_time import latest_time
from forebay.deadletter.entry import Entry
from forebay.deadletter.letter import Letter
from forebay.deadletter.locate import TextSpan, locate
from forebay.deadletter.masked import LetterMask, ShownPart
from forebay.deadletter.outcomes import LetterState
from forebay.errors import ForebayError
from forebay.formats import RefusalKind
from forebay.hiding import HIDDEN
from forebay.kafka.columns import layout
from forebay.kafka.rows import FORMAT_OPTIONS, RowDecoder
from forebay.options import Options
from forebay.sql import type_name

WIDTH = 16  # bytes a line, as every hex dump has it
SHOWN_LINES = 24  # of a long record: around the place where it failed


@dataclass(frozen=True)
class Line:
    """One line of a dump. `marked` are the places in it, 0 to 15, that are at fault."""

    at: int
    data: bytes
    marked: frozenset[int]


@dataclass(frozen=True)
class Explanation:
    """All that is known about one letter."""

    entry: Entry
    tried: tuple[tuple[str, str], ...]  # what, and with what
    part: str  # "key" or "value": what the dump is of
    span: TextSpan | None  # the bytes at fault
    lines: tuple[Line, ...]
    hidden: int  # bytes that the dump leaves out
    now: str  # what decoding it says today
    remedy: str
    masked: bool = False  # the dump is of what may be shown of it


@dataclass(frozen=True)
class _Record:
    """A letter's record, as a decoder takes a message of Kafka's."""

    letter: Letter

    def topic(self) -> str:
        return self.letter.topic

    def partition(self) -> int:
        return self.letter.partition

    def offset(self) -> int:
        return self.letter.offset

    def key(self) -> bytes | None:
        return self.letter.key

    def value(self) -> bytes | None:
        return self.letter.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.letter.headers)

    def timestamp(self) -> tuple[int, int]:
        return (1, self.letter.timestamp_ms) if self.letter.timestamp_ms is not None else (0, 0)


def explain(
    entry: Entry,
    config: SourceConfig,
    options: Options,
    url: str | None,
    record: Letter | None = None,
    flags: str | None = None,
    judge: Judge | None = None,
) -> Explanation:
    """`url` is the registry's address as it may be shown; `record` the letter with all of its value, if it was cut.

    `flags` are how a `forebay dlq` command names whose letters these are: a remedy can be typed as it is. `judge` is one
    of this source, if there is one already.
    """
    letter = record or entry.letter
    key = letter.stage == "KEY"
    prefix = "key." if key else ""
    form = str((options["key.format"] or "raw") if key else options["format"])
    payload = letter.key if key else letter.value
    parts = layout(config.schema, options)
    columns = (parts.keys if key else parts.values).names
    given = {
        name.removeprefix(prefix): str(options[name])
        for name in options
        if name.startswith(tuple(prefix + start for start in FORMAT_OPTIONS)) and options[name] is not None
    }
    path = letter.field.removeprefix("key.") if letter.field and key else letter.field
    span = locate(form, payload, letter.message, path, columns, given) if payload else None
    lines, hidden = dump(payload or b"", span)
    now = _decoded_now(letter, config, options, judge)
    flags = flags or f"--source {letter.source}"
    return Explanation(
        entry, _tried(form, payload, config, url), "key" if key else "value", span, lines, hidden, now,
        _remedy(entry, form, now, flags),
    )  # fmt: skip


def explain_alone(entry: Entry, topic: str, record: Letter, flags: str | None = None) -> Explanation:
    """Of a letter whose writer nobody here knows: a pool, an agent. What it tells by itself."""
    part = "key" if record.stage == "KEY" else "value"
    lines, hidden = dump((record.key if part == "key" else record.value) or b"", None)
    flags = flags or f"--topic {topic} --source {record.source}"
    remedy = (
        _settled(entry)
        or f"when its cause is gone: forebay dlq replay {flags} --id {entry.id}; discard it if it never will be"
    )
    return Explanation(
        entry,
        (),
        part,
        None,
        lines,
        hidden,
        f"not tried: only '{record.source}' knows how to handle it",
        remedy,
    )


def masked_explanation(found: Explanation, mask: LetterMask) -> Explanation:
    """The same without the values that are masked: the dump is of what may be shown."""
    letter = found.entry.letter
    key = found.part == "key"
    data, shown = (letter.key if key else letter.value) or b"", mask.part(letter, of_key=key)
    span = found.span if shown.same else moved(found.span, data, shown)
    lines, hidden = found.lines, found.hidden
    if not shown.same:
        lines, hidden = dump((shown.text or HIDDEN).encode(), span)
    entry = Entry(mask.letter(letter), found.entry.outcome)
    now = found.now
    if now.startswith("refused: "):
        now = "refused: " + mask.message(letter, now.removeprefix("refused: "))
    return replace(found, entry=entry, span=span, lines=lines, hidden=hidden, now=now, masked=not shown.same)


def moved(span: TextSpan | None, data: bytes, shown: ShownPart) -> TextSpan | None:
    """Where bytes of a payload are in the bytes of what may be shown of it; None where that cannot be said."""
    if span is None or shown.hidden is None or shown.text is None:
        return None
    low, high = (shown.hidden.place(len(data[:at].decode(errors="replace"))) for at in span)
    return len(shown.text[:low].encode()), max(
        len(shown.text[:high].encode()), len(shown.text[:low].encode()) + 1
    )


def dump(data: bytes, span: TextSpan | None, most: int = SHOWN_LINES) -> tuple[tuple[Line, ...], int]:
    """The lines around what is at fault, the first of all always; and how many bytes that leaves out."""
    starts = list(range(0, len(data), WIDTH))
    if len(starts) > most:
        middle = span[0] // WIDTH if span else 0
        first = max(0, min(middle - most // 2, len(starts) - most))
        starts = [0, *starts[first + (first > 0) : first + most]] if first else starts[:most]
    low, high = span or (0, 0)
    lines = tuple(
        Line(
            at,
            data[at : at + WIDTH],
            frozenset(place for place in range(len(data[at : at + WIDTH])) if low <= at + place < high),
        )
        for at in starts
    )
    return lines, len(data) - sum(len(line.data) for line in lines)


def _tried(
    form: str, payload: bytes | None, config: SourceConfig, url: str | None
) -> tuple[tuple[str, str], ...]:
    found = [("format", form)]
    if url is not None:
        framed = payload is not None and len(payload) >= 5 and payload[0] == 0
        which = (
            f"schema id {int.from_bytes(payload[1:5], 'big')}" if framed and payload else "no schema id in it"
        )
        found.append(("registry", f"{url}, {which}"))
    listed = ", ".join(
        f"{field.name} {type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"
        for field in config.schema
    )
    found.append(("columns", listed or "those of the format"))
    return tuple(found)


class Judge:
    """Whether a source, as it is defined now, takes a record."""

    def __init__(self, config: SourceConfig, options: Options) -> None:
        latest = latest_time(config, options, int(time.time() * 1000))
        self._rows = RowDecoder(config.schema, options, latest)

    def refusal(self, letter: Letter) -> RejectedRecord | None:
        """Why it does not; None if it does. A ForebayError if that cannot be tried now."""
        return self.verdict(letter)[1]

    def rows(self, letter: Letter) -> list[dict[str, Any]]:
        """What it makes of a record: none if it refuses it, or skips it."""
        return self.verdict(letter)[0]

    def verdict(self, letter: Letter) -> tuple[list[dict[str, Any]], RejectedRecord | None]:
        """Both."""
        records: Sequence[Any] = [_Record(letter)]
        batches = list(self._rows.decode(records))
        rows = [row for batch in batches for row in batch.records.to_pylist()]
        return rows, next((bad for batch in batches for bad in batch.rejected), None)


def _decoded_now(letter: Letter, config: SourceConfig, options: Options, judge: Judge | None = None) -> str:
    if not letter.whole or letter.size < 0:
        return "not tried: the letter has only a part of the record"
    try:
        bad = (judge or Judge(config, options)).refusal(letter)
    except ForebayError as error:
        return f"not tried: {error.message}"
    if bad is None:
        return "decodes"
    # One fault has one wording: the native decoder, which wrote the letter, puts some of them otherwise than this one.
    same = bad.message == letter.message or (bad.kind, bad.path or None) == (letter.kind, letter.field)
    return "refused, for the same reason" if same else f"refused: {bad.kind}: {bad.message}"


_ADVICE = {
    RefusalKind.MALFORMED_PAYLOAD: "whoever wrote this record did not write {form}. A few: repair them with a function "
    "({replay} --with module:function) or discard them. All: the source's FORMAT is another",
    RefusalKind.SCHEMA_MISMATCH: "add what is missing ({replay} {repair}), or declare {column} without NOT NULL in "
    "CREATE OR REPLACE SOURCE and replay",
    RefusalKind.TYPE_CONVERSION: "correct the value ({replay} {repair}), or declare {column} with a type that takes "
    "it in CREATE OR REPLACE SOURCE and replay",
    RefusalKind.UNKNOWN_SCHEMA_ID: "the registry does not know this id: register the schema where the source looks for it, "
    "or correct USING SCHEMA REGISTRY (url = …), and replay",
    RefusalKind.PAYLOAD_TOO_LARGE: "the record is larger than the source takes: raise its limit and replay, or discard it",
    RefusalKind.FUTURE_TIMESTAMP: "the clock of whoever wrote it is wrong, or the unit of its time is: correct it "
    "({replay} {repair}). If such times are right, raise 'watermark.max.future.ms' in CREATE OR REPLACE SOURCE and replay",
    RefusalKind.LATE_RECORD: "it decodes, and came after its window was closed; every other view of the source has it. Send it "
    "where late records are looked after ({replay} --to TOPIC), or allow more: ALLOW LATENESS INTERVAL … in the view",
    RefusalKind.OTHER: "the message above says what happened; replay when its cause is gone, or discard it",
}


def _remedy(entry: Entry, form: str, now: str, flags: str) -> str:
    letter = entry.letter
    replay = f"forebay dlq replay {flags} --id {entry.id}"
    settled = _settled(entry)
    if settled:
        return settled
    if now == "decodes" and letter.kind != RefusalKind.LATE_RECORD:
        return f"the source takes it now: {replay}"
    field = (letter.field or "").removeprefix("key.")
    column = re.split(r"[.\[]", field)[0] if field else "the column"
    fields = form in ("json", "debezium-json", "avro", "protobuf") and letter.stage == "VALUE"
    named = column if field else "field"
    repair = "--patch '{\"" + named + "\": …}'" if fields else "--with module:function"
    try:
        advice = _ADVICE[RefusalKind(letter.kind)]
    except ValueError:
        advice = _ADVICE[RefusalKind.OTHER]
    return advice.format(form=form, column=column, repair=repair, replay=replay)


def _settled(entry: Entry) -> str:
    """That nothing is to be done about it; nothing if something is."""
    outcome = entry.outcome
    if outcome.state is LetterState.OPEN:
        return ""
    return f"none needed: it is {outcome.state}" + (f" ({outcome.reason})" if outcome.reason else "")
