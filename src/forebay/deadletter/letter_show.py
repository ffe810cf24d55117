"""One letter as the desk shows it: payloads as text and hex, the place where decoding failed, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forebay.deadletter.desk_views import HeaderView, HexLine, LetterEvent, LetterRow, LetterView, Payload
from forebay.deadletter.edits import json_span
from forebay.deadletter.entry import Entry, text_of
from forebay.deadletter.explain import Explanation, dump, explain, explain_alone, moved
from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter
from forebay.deadletter.locate import TextSpan
from forebay.deadletter.masked import LetterMask, ShownPart
from forebay.deadletter.outcomes import Outcome
from forebay.deadletter.owners import Owner
from forebay.deadletter.trials import Known, characters
from forebay.errors import ForebayError
from forebay.formats.refusal import RefusedError
from forebay.hiding import HIDDEN, NOTHING
from forebay.kafka.json_payloads import JsonPayloads

TEXT_SHOWN = 64 << 10  # characters of a payload; an edit of a longer one is for a program
LINES_SHOWN = 64  # of a hex dump
HEADER_SHOWN = 2000


def view_of(
    row: LetterRow,
    entry: Entry,
    record: Letter,
    owner: Owner,
    known: Known | None,
    mask: LetterMask | None,
    history: Sequence[tuple[Outcome, str | None]],
    fate_reason: str,
) -> LetterView:
    """`record` is the letter with all of its value, as far as it can be had."""
    found = _explained(entry, record, owner, known)
    mask = mask or LetterMask(NOTHING)
    message = mask.message(record, record.message)
    now = found.now
    if now.startswith("refused: "):
        now = "refused: " + mask.message(record, now.removeprefix("refused: "))
    payloads = None if known is None else known.edits.payloads
    key, value = (
        _payload(record, mask, payloads if not of_key else None, of_key, found.span if (found.part == "key") == of_key else None)
        for of_key in (True, False)
    )  # fmt: skip
    return LetterView(
        row=row,
        message=message,
        stage=record.stage,
        key=key,
        value=value,
        headers=tuple(_header(name, data, mask) for name, data in record.headers),
        tried=found.tried,
        now=now,
        remedy=found.remedy,
        fate_reason=fate_reason,
        stacktrace=mask.letter(record).stacktrace,
        replayed_from=entry.replayed_from,
        history=tuple(_event(outcome, actor) for outcome, actor in history),
        masked=bool(mask),
    )


def _explained(entry: Entry, record: Letter, owner: Owner, known: Known | None) -> Explanation:
    if known is None:
        return explain_alone(entry, str(owner.place.topic or owner.place), record)
    return explain(entry, known.config, known.options, known.registry, record, judge=known.judge)


def _payload(
    letter: Letter, mask: LetterMask, payloads: JsonPayloads | None, of_key: bool, span: TextSpan | None
) -> Payload | None:
    data = letter.key if of_key else letter.value
    size = len(data or b"") if of_key else letter.size
    if data is None:
        if of_key or letter.whole:
            return None  # the record has none
        return Payload(size, None, None, None, (), size, None, False, "it is not in the letter")
    shown = mask.part(letter, of_key=of_key)
    if not shown.same:
        return _masked(data, shown, size, span, of_key, letter)
    lines, hidden = dump(data, span, LINES_SHOWN)
    text = text_of(data)
    cut = text is not None and len(text) > TEXT_SHOWN
    whole = of_key or letter.whole
    note = (
        None
        if whole
        else f"the letter has {len(data):,} of {size:,} bytes, and the topic no longer has the rest"
    )
    found = Payload(
        size,
        text[:TEXT_SHOWN] if text is not None else None,
        characters(data, span) if span is not None and text is not None else None,
        None,
        tuple(HexLine(line.at, line.data.hex(), _printable(line.data), tuple(sorted(line.marked))) for line in lines),
        hidden,
        span,
        not cut and whole and not of_key,
        f"the first {TEXT_SHOWN:,} characters" if cut else note,
        "text" if text is not None else "hex",
    )  # fmt: skip
    return _as_json(found, letter, payloads) if payloads is not None and whole else found


def _as_json(found: Payload, letter: Letter, payloads: JsonPayloads) -> Payload:
    """Of a format that is no text. What cannot be decoded can be replaced as a whole."""
    try:
        text = payloads.text(letter.value)
    except RefusedError as refused:
        why = f"it cannot be decoded, only replaced as a whole: {refused.message}"
        return replace(found, editable=True, form="json", note=why)
    except ForebayError as error:
        return replace(found, editable=True, form="hex", note=f"it cannot be decoded now: {error.message}")
    cut = len(text) > TEXT_SHOWN
    return replace(
        found,
        text=None,
        text_span=json_span(text, letter.field),
        decoded=text[:TEXT_SHOWN],
        editable=not cut,
        note=f"the first {TEXT_SHOWN:,} characters" if cut else None,
        form="json",
    )


def _masked(
    data: bytes, shown: ShownPart, size: int, span: TextSpan | None, of_key: bool, letter: Letter
) -> Payload:
    """No hex: that would show what is masked."""
    decoded = shown.text if shown.note == "decoded" else None
    text = shown.text if decoded is None else None
    place = moved(span, data, shown)
    cut = text is not None and len(text) > TEXT_SHOWN
    return Payload(
        size,
        text[:TEXT_SHOWN] if text is not None else None,
        characters((text or "").encode(), place) if place is not None and text is not None else None,
        decoded,
        (),
        len(data),
        place,
        shown.hidden is not None and not cut and not of_key and letter.whole,
        shown.note,
    )


def _header(name: str, data: bytes | None, mask: LetterMask) -> HeaderView:
    if data is None:
        return HeaderView(name, None, None, False)
    if mask.mask.names(name):
        return HeaderView(name, HIDDEN, None, True)
    text = text_of(data)
    if text is None:
        return HeaderView(name, None, data[: HEADER_SHOWN // 2].hex(), False)
    return HeaderView(name, text[:HEADER_SHOWN], None, False)


def _event(outcome: Outcome, actor: str | None) -> LetterEvent:
    target = None
    if outcome.target_topic and outcome.target_partition is not None and outcome.target_offset is not None:
        target = Identity(outcome.target_topic, outcome.target_partition, outcome.target_offset).place
    return LetterEvent(
        outcome.at_ms or 0, str(outcome.state), outcome.reason, actor, outcome.replay_id, target
    )


def _printable(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in data)
