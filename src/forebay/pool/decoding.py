"""Values by a format: the same formats and the same registry as those of sources.

JSON without columns is what the text says. Everything else goes through the decoders of `forebay.formats`, and a value
is a dict of its columns: those of `columns`, or those of the schema. A change of a database's row is what was done (`op`)
with the row as it was and as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from forebay.errors import BadRecordError, NoColumnsError, OptionValueError, StatementError
from forebay.options import Options
from forebay.pool.record import Record

if TYPE_CHECKING:
    from forebay.formats import Decoder

Decode = Callable[[list[Record]], None]
"""Gives records their value, or the kind and the reason of a refusal."""


def decoding(options: Options) -> Decode | None:
    """None where values are bytes."""
    if options["format"] == "raw":
        return None
    if options["format"] == "json" and not options["columns"] and not options["schema.registry.url"]:
        return _plain_json
    return _Changes(options) if options["format"] == "debezium-json" else _Rows(options)


def _plain_json(records: list[Record]) -> None:
    for record in records:
        raw = record.raw
        if raw is None:
            continue
        try:
            record._value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            record._refusal = "MalformedPayload", f"not JSON: {error}"


def refusing(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """The handler, which is not called with a record that has no value: that is a failure of its own kind."""

    async def call(given: Any) -> None:
        for record in given if isinstance(given, list) else (given,):
            refusal = getattr(record, "_refusal", None)
            if refusal is not None:
                raise BadRecordError(refusal[1], kind=refusal[0])
        await handler(given)

    return call


class _Rows:
    """By a decoder of `forebay.formats`, loaded only where one is wanted."""

    def __init__(self, options: Options) -> None:
        from forebay.formats.registered import registered_decoder
        from forebay.registry import origin

        columns = _columns(options)
        texts = {key: str(options[key]) for key in options if options[key] is not None}
        schemas = origin(options)
        if schemas is not None:
            self._decoder = registered_decoder(options["format"], columns, texts, schemas)
        else:
            self._decoder = self._of(options["format"], columns, texts)

    def _of(self, format: str, columns: Any, texts: dict[str, str]) -> Decoder:
        from forebay.formats import decoder

        return decoder(format, columns, texts)

    def __call__(self, records: list[Record]) -> None:
        present = [
            record for record in records if record.raw is not None
        ]  # a tombstone has no value to decode
        decoded = self._decoder.decode([record.raw for record in present])
        rows: Sequence[Any] = decoded.batch.to_pylist()
        indexes = decoded.good if decoded.good is not None else range(len(rows))
        for index, row in zip(indexes, rows, strict=True):
            self._give(present[index], row)
        for bad in decoded.bad:
            present[bad.index]._refusal = str(bad.kind), bad.message
        for index in decoded.skipped:  # a header line, a comment: no value
            present[index]._value = None

    def _give(self, record: Record, row: dict[str, Any]) -> None:
        record._value = row


class _Changes(_Rows):
    """`{"op": "u", "ts_ms": 7, "before": {…}, "after": {…}}`: a decoder's rows of a change, put together again."""

    def _of(self, format: str, columns: Any, texts: dict[str, str]) -> Decoder:
        from forebay.formats.debezium_format import ChangeDecoder

        return ChangeDecoder(columns, texts)

    def _give(self, record: Record, row: dict[str, Any]) -> None:
        """Once for each row of the record's: an update has two."""
        op, stamp, weight = row.pop("_op"), row.pop("_ts_ms"), row.pop("_weight")
        if not hasattr(record, "_value"):
            record._value = {"op": op, "ts_ms": stamp, "before": None, "after": None}
        record._value["before" if weight < 0 else "after"] = row


def _columns(options: Options) -> Any:
    from forebay.kafka.discovery import discover

    if options["columns"]:
        return _declared(options["columns"])
    found = discover(options, lambda _: ()) if options["format"] != "json" else None
    if found is None:
        raise NoColumnsError(
            f"format '{options['format']}' needs 'columns' here",
            remedy="for example columns='id BIGINT, name STRING'",
        )
    return found.columns


def _declared(text: str) -> Any:
    """As CREATE SOURCE reads them: there is one grammar of columns."""
    import pyarrow as pa

    from forebay.sql import CreateSource, parse_one

    try:
        statement = parse_one(f"CREATE SOURCE pool ({text}) FROM KAFKA (topic = 'pool') FORMAT JSON")
    except StatementError as error:
        raise OptionValueError(
            f"'columns' cannot be {text!r}: {error.message}",
            option="columns",
            remedy=error.remedy or "for example columns='id BIGINT, name STRING'",
        ) from None
    assert isinstance(statement, CreateSource)
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in statement.columns])
