"""Letters as they may be shown: without the values that their source's `mask` names. The letters themselves keep them.

In JSON and CSV the values are taken out of the text. Other formats are shown decoded, as JSON, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forebay.deadletter.letter import Letter
from forebay.deadletter.locate import csv_field
from forebay.errors import ForebayError, OptionValueError
from forebay.hiding import HIDDEN, Hidden, Mask, restored, without

if TYPE_CHECKING:
    from confluent_kafka import Message

    from forebay.connectors.contract import SourceConfig
    from forebay.options import Options

JSON_FORMATS = ("json", "debezium-json")


@dataclass(frozen=True)
class ShownPart:
    """A key or a value. `text` is what may be shown; `same` whether that is all of it, byte for byte."""

    text: str | None
    same: bool
    hidden: Hidden | None = None  # where values were taken out of a text
    note: str | None = None


class LetterMask:
    """Of one owner. `source` gives how it decodes records; it is asked only where something is masked."""

    def __init__(
        self, mask: Mask, source: Callable[[], tuple[SourceConfig, Options] | None] = lambda: None
    ) -> None:
        self.mask = mask
        self._source = source

    def __bool__(self) -> bool:
        return bool(self.mask)

    def letter(self, letter: Letter) -> Letter:
        """The letter as it may be shown; itself, if nothing is masked."""
        if not self.mask:
            return letter
        return replace(
            letter,
            key=self._bytes(letter, of_key=True),
            value=self._bytes(letter, of_key=False),
            headers=tuple(
                (name, HIDDEN.encode() if data is not None and self.mask.names(name) else data)
                for name, data in letter.headers
            ),
            message=self.message(letter, letter.message),
            stacktrace=letter.stacktrace and without(letter.stacktrace, self._values(letter)),
        )

    def message(self, letter: Letter, message: str, path: str | None = None) -> str:
        """A message about a letter's record, without what it quotes of it if that is masked."""
        if not self.mask:
            return message
        path = path or letter.field
        if letter.stage == "KEY" and self._key_is_masked:
            path = None
        return without(self.mask.message(message, path), self._values(letter))

    def part(self, letter: Letter, *, of_key: bool) -> ShownPart:
        """Its key or value."""
        data = letter.key if of_key else letter.value
        if data is None:
            return ShownPart(None, True)
        text = _text(data)
        if not self.mask:
            return ShownPart(text, True)
        form = self._form(of_key)
        if form in JSON_FORMATS or (form is None and text is not None and text.lstrip()[:1] in ("{", "[")):
            if text is not None:
                hidden = self.mask.json_text(text)
                same = hidden.whole and not hidden.values
                note = (
                    None
                    if hidden.whole
                    else "it is broken, so that from there on only its structure is shown"
                )
                return ShownPart(hidden.text, same, hidden, note)
        elif form == "csv" and not of_key:
            return self._csv(text)
        elif form == "raw":
            names = [*self._columns(of_key), "key" if of_key else "value"]
            if any(map(self.mask.names, names)):
                return ShownPart(None, False, note="it is masked")
            return ShownPart(text, True)
        return self._decoded(letter, of_key)

    def restored(self, letter: Letter, edited: bytes) -> bytes:
        """An edited value with the true values where `•••` stands. OptionValueError where that cannot be known."""
        if not self.mask or HIDDEN.encode() not in edited:
            return edited
        shown = self.part(letter, of_key=False)
        try:
            if shown.hidden is None:
                raise ValueError(f"{HIDDEN} stands for nothing that can be put back: write the value anew")
            return restored(edited.decode(), shown.hidden).encode()
        except ValueError as error:
            raise OptionValueError(f"the value cannot be sent: {error}", option="value") from None

    def row(self, row: Any) -> Any:
        """A decoded row."""
        return self.mask.row(row) if self.mask else row

    # -- inside ---------------------------------------------------------------------------------------

    def _bytes(self, letter: Letter, *, of_key: bool) -> bytes | None:
        data = letter.key if of_key else letter.value
        shown = self.part(letter, of_key=of_key)
        if data is None or shown.same:
            return data
        return (HIDDEN if shown.text is None else shown.text).encode()

    def _csv(self, text: str | None) -> ShownPart:
        source = self._known
        assert source is not None
        columns = self._columns(False)
        masked = [name for name in columns if self.mask.names(name)]
        if text is None or not masked:
            return ShownPart(text, text is not None and not masked)
        options = {
            name: str(source[1][name])
            for name in source[1]
            if name.startswith("csv.") and source[1][name] is not None
        }
        spans = sorted(span for name in masked if (span := csv_field(text, name, columns, options)))
        if len(spans) != len(masked):
            return ShownPart(
                None, False, note="it has not the fields that it should have, and is masked as a whole"
            )
        parts, at = [], 0
        for low, high in spans:
            parts += [text[at:low], HIDDEN]
            at = high
        return ShownPart("".join([*parts, text[at:]]), False)

    def _decoded(self, letter: Letter, of_key: bool) -> ShownPart:
        """Of a format that is no text: the row as JSON."""
        from forebay.deadletter.explain import Judge

        source = self._known
        if source is None or of_key or not letter.whole:
            return ShownPart(None, False, note="it is masked as a whole: it is in a format that has no text")
        try:
            rows = Judge(*source).rows(letter)
        except ForebayError as error:
            return ShownPart(
                None, False, note=f"it is masked as a whole: it cannot be decoded now: {error.message}"
            )
        if not rows:
            return ShownPart(None, False, note="it is masked as a whole: it does not decode")
        names = set(self._columns(False))
        found = [{name: value for name, value in row.items() if name in names} for row in rows]
        return ShownPart(row_json(self.row(found[0] if len(found) == 1 else found)), False, note="decoded")

    def _values(self, letter: Letter) -> list[str]:
        """The masked values of a letter, as far as they can be found."""
        found: list[str] = [
            text for name, data in letter.headers if data and self.mask.names(name) and (text := _text(data))
        ]
        for data in (letter.key, letter.value):
            try:
                found += self.mask.leaves(json.loads(data)) if data else []
            except (ValueError, RecursionError):
                continue
        return found

    @cached_property
    def _known(self) -> tuple[SourceConfig, Options] | None:
        return self._source()

    def _form(self, of_key: bool) -> str | None:
        if self._known is None:
            return None
        options = self._known[1]
        return str((options["key.format"] or "raw") if of_key else options["format"])

    def _columns(self, of_key: bool) -> list[str]:
        from forebay.kafka.columns import layout

        if self._known is None:
            return []
        config, options = self._known
        parts = layout(config.schema, options)
        return list((parts.keys if of_key else parts.values).names)

    @property
    def _key_is_masked(self) -> bool:
        return any(map(self.mask.names, [*self._columns(True), "key"]))


def as_letter(message: Message) -> Letter:
    """A record of a topic, to be shown as a letter's is: `LetterMask.letter` hides the same of it."""
    known, stamp = message.timestamp()
    value = message.value()
    return Letter(
        "", str(message.topic()), message.partition() or 0, message.offset() or 0, stamp if known else None, message.key(),
        value, tuple(message.headers() or ()), "", "", 0, size=len(value or b""),
    )  # fmt: skip


def row_json(value: Any) -> str:
    """A decoded row as JSON: what it has no notation for becomes text."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            text = _text(value)
            return text if text is not None else f"0x{value.hex()}"
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
    return str(value)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
