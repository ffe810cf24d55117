"""What a person or a patch makes of a letter's value: text, JSON in the record's own schema, or hexadecimal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.deadletter.desk_views import EditForm, Trial
from forebay.deadletter.entry import text_of
from forebay.deadletter.letter import Letter
from forebay.deadletter.locate import TextSpan, locate
from forebay.deadletter.masked import LetterMask
from forebay.deadletter.repair import Repair, RepairError, json_repair, merge_patch
from forebay.deadletter.replacing import ALL, Replacement, replacing, steps
from forebay.errors import ForebayError, OptionValueError, StatementError
from forebay.formats.refusal import RefusedError
from forebay.hiding import HIDDEN
from forebay.kafka.columns import layout
from forebay.kafka.json_payloads import JsonPayloads, json_payloads

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay.connectors.contract import SourceConfig
    from forebay.options import Options


class Edits:
    """Of one owner: `payloads` is how its values are JSON where they are no text, `columns` are those of its values."""

    def __init__(
        self,
        payloads: JsonPayloads | None,
        columns: pa.Schema | None = None,
        mask: LetterMask | None = None,
    ) -> None:
        self.payloads = payloads
        self._columns = columns
        self._mask = mask

    @classmethod
    def of(cls, source: tuple[SourceConfig, Options] | None, mask: LetterMask | None = None) -> Edits:
        """`source` is how an owner decodes, None where nobody here knows."""
        if source is None:
            return cls(None, None, mask)
        config, options = source
        return cls(json_payloads(options), layout(config.schema, options).values, mask)

    def shown(self, letter: Letter) -> str | None:
        """A value as a text that may be shown; None where there is none."""
        if self._mask:
            return self._mask.part(letter, of_key=False).text
        if self.payloads is not None:
            try:
                return self.payloads.text(letter.value)
            except (RefusedError, ForebayError):
                return None
        return text_of(letter.value)

    def value(self, letter: Letter, edited: bytes, form: EditForm) -> bytes:
        """The bytes that an edit means; `•••` stands for what the record has there. OptionValueError if it has none."""
        if form == "hex":
            try:
                return bytes.fromhex(edited.decode())
            except ValueError as error:
                raise OptionValueError(f"the value is not hexadecimal: {error}", option="value") from None
        true = self._mask.restored(letter, edited) if self._mask else edited
        if form == "text" or self.payloads is None:
            return true
        return self.payloads.payload(true.decode(), letter.value)

    def repair(self, patch: str | None, replacements: Sequence[Replacement] = ()) -> Repair:
        """First the replacements, then the patch (RFC 7386). OptionValueError if one of them is wrong."""
        if patch is not None and HIDDEN in patch:
            raise OptionValueError(f"a patch cannot hold {HIDDEN}: write the value", option="patch")
        made: list[Repair] = []
        if replacements:
            for each in replacements:
                self._check_shown(each.field)
            change = replacing(replacements, self._columns)
            made.append(json_repair(change, always=patch is not None))
        if patch is not None:
            made.append(merge_patch(patch))
        if not made:
            raise OptionValueError("there is neither a patch nor a replacement", option="patch")
        return _through_json(_one_after_another(made), self.payloads)

    def _check_shown(self, field: str) -> None:
        """Whether a pattern matches tells what a masked field holds, so such a field has no replacements."""
        if not self._mask:
            return
        names = [step for step in steps(field) if isinstance(step, str)]
        hidden = any(self._mask.mask.hides(names[: place + 1]) for place in range(len(names)))
        # All entries of a map, and fields that a schema may have under another name than the column, may be masked ones.
        if hidden or ALL in names or self.payloads is not None:
            raise OptionValueError(
                f"'{field}' may be masked, and has no replacements",
                option="replace",
                remedy="set it by a patch, or replay with a function: forebay dlq replay --with module:function",
            )


def with_value(letter: Letter, value: bytes | None) -> Letter:
    return replace(letter, value=value, size=len(value or b""), sha256=None)


def placed_in_json(trial: Trial, text: str) -> Trial:
    """With the place of what is wrong in the JSON that was tried, and not in the bytes that it became."""
    return replace(trial, byte_span=None, text_span=None if trial.accepted else json_span(text, trial.field))


def json_span(text: str, field: str | None) -> TextSpan | None:
    """From and to character of a field."""
    found = locate("json", text.encode(), "", field, (), {})
    if found is None:
        return None
    low, high = (len(text.encode()[:at].decode(errors="replace")) for at in found)
    return low, high


def _one_after_another(repairs: Sequence[Repair]) -> Repair:
    def repair(letter: Letter) -> bytes | None:
        for each in repairs:
            made = each(letter)
            if made is None:
                return None
            letter = with_value(letter, made)
        return letter.value

    return repair


def _through_json(repair: Repair, payloads: JsonPayloads | None) -> Repair:
    """A repair of JSON, for values that are none: decoded before, and encoded in their own schema after."""
    if payloads is None:
        return repair

    def run(letter: Letter) -> bytes | None:
        try:
            made = repair(with_value(letter, payloads.text(letter.value).encode()))
            return None if made is None else payloads.payload(made.decode(), letter.value)
        except RefusedError as refused:
            raise RepairError(f"it cannot be decoded: {refused.message}") from None
        except StatementError as error:
            raise RepairError(error.message) from None

    return run
