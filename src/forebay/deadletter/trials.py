"""Whether a source takes a record, tried out quickly: what decodes is made once for each definition of a source."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from forebay.connectors.contract import RejectedRecord, SourceConfig
from forebay.deadletter.desk_views import Trial
from forebay.deadletter.edits import Edits
from forebay.deadletter.explain import Judge, moved
from forebay.deadletter.letter import Letter
from forebay.deadletter.locate import TextSpan, locate
from forebay.deadletter.masked import LetterMask, row_json
from forebay.deadletter.owners import Owner, mask_of
from forebay.errors import ForebayError
from forebay.kafka.columns import layout
from forebay.kafka.rows import FORMAT_OPTIONS
from forebay.options import Options

KEPT_S = 60.0  # then it is made anew: the clock goes on, and a registry may know more
ROW_SHOWN = 64 << 10  # characters


@dataclass(frozen=True)
class Known:
    """How a source decodes, as it was defined a moment ago."""

    config: SourceConfig
    options: Options
    judge: Judge | None  # None: `trouble` says why there is none now
    edits: Edits
    trouble: str = ""

    @property
    def registry(self) -> str | None:
        """Its address as it may be shown."""
        url = self.options.get("schema.registry.url")
        return self.options.table.shown("schema.registry.url", str(url)) if url else None


class Trials:
    """Of one desk. A decoder is used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[str, tuple[float, str, Known | None, LetterMask | None]] = {}

    def edits(self, owner: Owner) -> Edits:
        """How an owner's values are edited."""
        known, mask = self.of(owner)
        return Edits(None, None, mask) if known is None else known.edits

    def of(self, owner: Owner) -> tuple[Known | None, LetterMask | None]:
        """How an owner decodes, None where nobody here knows; and what of it must not be shown."""
        with self._lock:
            text = owner.definition()
            kept = self._known.get(owner.key)
            if kept is None or kept[1] != text or time.monotonic() - kept[0] > KEPT_S:
                source = owner.source()
                mask = mask_of(owner)
                if mask is not None and source is not None:
                    mask = LetterMask(mask.mask, lambda: source)
                known = None if source is None else _made(source, mask)
                kept = self._known[owner.key] = (time.monotonic(), text, known, mask)
            return kept[2], kept[3]

    def judge(self, owner: Owner, letter: Letter) -> Trial:
        """What the owner says to a letter's record: its key, its value, its headers."""
        began = time.perf_counter()
        with self._lock:
            known, mask = self.of(owner)
            if known is None or known.judge is None:
                why = known.trouble if known else f"only '{owner.name}' knows how to handle it"
                return Trial(False, None, message=f"not tried: {why}", tried=False)
            try:
                rows, bad = known.judge.verdict(letter)
            except ForebayError as error:
                return Trial(False, None, message=f"not tried: {error.message}", tried=False)
        took = (time.perf_counter() - began) * 1000
        if bad is None:
            row = rows[0] if len(rows) == 1 else rows or None
            text = row_json(mask.row(row) if mask else row)
            return Trial(True, text[:ROW_SHOWN], took_ms=took)
        refused = replace(letter, field=bad.path or None, stage="KEY" if bad.of_key else "VALUE")
        message = mask.message(refused, bad.message, bad.path) if mask else bad.message
        span = None if bad.of_key else span_of(known, bad, letter)
        found = Trial(False, None, bad.kind, message, bad.path or None, took_ms=took)
        return _placed(found, span, letter, mask)


def _made(source: tuple[SourceConfig, Options], mask: LetterMask | None) -> Known:
    edits = Edits.of(source, mask)
    try:
        return Known(*source, Judge(*source), edits)
    except ForebayError as error:
        return Known(*source, None, edits, error.message)


def _placed(found: Trial, span: TextSpan | None, letter: Letter, mask: LetterMask | None) -> Trial:
    """With the place of what is wrong, in what may be shown."""
    if span is None or letter.value is None:
        return found
    shown = mask.part(letter, of_key=False) if mask else None
    if shown is not None and not shown.same:
        span = moved(span, letter.value, shown)
        if span is None:
            return found
        return replace(found, byte_span=span, text_span=characters((shown.text or "").encode(), span))
    return replace(found, byte_span=span, text_span=characters(letter.value, span))


def span_of(known: Known, bad: RejectedRecord, letter: Letter) -> TextSpan | None:
    """Where in its value a record is wrong."""
    options = known.options
    given = {
        name: str(options[name])
        for name in options
        if name.startswith(FORMAT_OPTIONS) and options[name] is not None
    }
    columns = layout(known.config.schema, options).values.names
    return locate(str(options["format"]), letter.value or b"", bad.message, bad.path or None, columns, given)


def characters(data: bytes, span: TextSpan) -> TextSpan:
    """The same place in the text that bytes are."""
    low, high = (len(data[:at].decode(errors="replace")) for at in span)
    return low, max(high, low + 1)
