"""FORMAT json: one JSON object a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.case_mismatch import CaseCheck
from forebay.formats.contract import NO_MORE, Decoded
from forebay.formats.json_text import parse_exact, parse_fast
from forebay.formats.refusal import check_present
from forebay.formats.values import needs_digits, row_converter


class JsonDecoder:
    """Strict JSON. A column that occurs twice in one object is refused, as is half a surrogate pair."""

    native_options = NO_MORE

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self.schema = readable(schema)
        self._made_from = (schema, dict(options))
        self._row = row_converter(schema)
        self._case = CaseCheck(schema)
        self.mismatched = False  # of the last row
        self._parse = parse_exact if needs_digits(schema) else parse_fast

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonDecoder, self._made_from

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_each(values, self.schema, self._record, lambda: self.mismatched)

    def _record(self, payload: bytes | None) -> list[Any]:
        check_present(payload)
        assert payload is not None
        return self.row(payload)

    def row(self, payload: bytes) -> list[Any]:
        """The columns' values of one text. RefusedError if it is not taken."""
        value = self._parse(payload)
        row: list[Any] = self._row(value)
        self.mismatched = self._case.in_row(value, row)
        return row
