"""FORMAT raw: the payload itself, in one column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.contract import NO_MORE, Decoded
from forebay.formats.refusal import RefusedError, malformed, mismatch


class RawDecoder:
    """One BINARY column: the bytes as they are; or one STRING: the bytes as strict UTF-8.

    A tombstone is NULL where the column may be NULL. An empty payload is an empty value.
    """

    native_options = NO_MORE

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        if len(schema) != 1 or schema[0].type not in (types.BINARY, types.STRING):
            raise UnsupportedSqlError("FORMAT raw has exactly one column, of type BINARY or STRING")
        self.schema = readable(schema)
        self._made_from = (schema, dict(options))
        self._column = schema[0]
        self._text = schema[0].type == types.STRING

    def __reduce__(self) -> tuple[Any, ...]:
        return RawDecoder, self._made_from

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_each(values, self.schema, self._record)

    def _record(self, payload: bytes | None) -> tuple[bytes | str | None]:
        try:
            if payload is None and not self._column.nullable:
                raise mismatch("NOT NULL, but the payload is null (a tombstone)")
            if payload is None or not self._text:
                return (payload,)
            try:
                return (payload.decode(),)
            except UnicodeDecodeError as error:
                raise malformed(f"invalid UTF-8 at byte {error.start}") from None
        except RefusedError as refused:
            refused.enter(f".{self._column.name}")
            raise
