"""FORMAT avro: one datum a message, without a header, in the writer's schema of `avro.schema`.

The plain decoder: it first walks the whole datum (`avro_datum.py`), so that bytes which are no datum are
malformed whatever else is wrong with them, and then fills the columns (`avro_values.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from forebay.errors import MissingOptionError
from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.avro_datum import read_datum
from forebay.formats.avro_plan import compile_plan
from forebay.formats.avro_schema import FILE_OPTION, OPTION, written_schema
from forebay.formats.avro_values import convert_record
from forebay.formats.contract import Decoded
from forebay.formats.refusal import check_present


class AvroDecoder:
    """Fields by their exact names. What the writer has beyond the columns is checked and left out."""

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self.schema = readable(schema)
        written = written_schema(options)
        if written is None:
            raise MissingOptionError(
                f"format 'avro' needs the writer's schema in '{OPTION}'",
                option=OPTION,
                remedy=f"'{OPTION}' = '{{\"type\": \"record\", …}}' or '{FILE_OPTION}' = 'order.avsc' as the "
                "producer has it, or USING SCHEMA REGISTRY (url = '…')",
            )
        self._made_from = (schema, dict(options))
        self._plan = compile_plan(written, schema)
        self._names = schema.names

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroDecoder, self._made_from

    @property
    def native_options(self) -> dict[str, str]:
        return {"avro.plan": json.dumps(self._plan, ensure_ascii=False, separators=(",", ":"))}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_each(values, self.schema, self._record)

    def _record(self, payload: bytes | None) -> list[Any]:
        check_present(payload)
        assert payload is not None
        found = convert_record(self._plan, read_datum(self._plan, payload))
        return [found.get(name) for name in self._names]
