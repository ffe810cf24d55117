"""What a payload's bytes mean: one file a format, one contract for all (`contract.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import pyarrow as pa

from forebay.errors import UnsupportedSqlError
from forebay.formats.contract import BadRecord, Decoded, Decoder, RefusalKind

__all__ = ["FORMATS", "BadRecord", "Decoded", "Decoder", "RefusalKind", "decoder", "key_decoder"]

# By name: Spark starts several processes for a query, and each would import the decoders of all formats.
_DECODERS = {
    "json": "json_format.JsonDecoder",
    "avro": "avro_format.AvroDecoder",
    "protobuf": "protobuf_format.ProtobufDecoder",
    "debezium-json": "debezium_format.DebeziumDecoder",
    "csv": "csv_format.CsvDecoder",
    "raw": "raw_format.RawDecoder",
}

FORMATS = tuple(_DECODERS)
"""The formats that `decoder()` knows, in the order in which the documentation lists them."""


def decoder(format: str, schema: pa.Schema, options: Mapping[str, str]) -> Decoder:
    """The decoder of a format for a schema. Options of other parts of a source are ignored.

    UnsupportedSqlError if the format is unknown or cannot hold a column of the schema.
    """
    if format not in _DECODERS:
        known = ", ".join(FORMATS)
        raise UnsupportedSqlError(f"unknown format {format!r}", remedy=f"the formats are {known}")
    return _named(_DECODERS[format])(schema, options)


def key_decoder(format: str, schema: pa.Schema, options: Mapping[str, str]) -> Decoder:
    """The decoder of a record's key: the same, but that a change's key is not itself a change."""
    if format == "debezium-json":
        return _named("debezium_format.DebeziumKeyDecoder")(schema, options)
    return decoder(format, schema, options)


def _named(name: str) -> Callable[[pa.Schema, Mapping[str, str]], Decoder]:
    module, _, attribute = name.partition(".")
    found: Callable[[pa.Schema, Mapping[str, str]], Decoder] = getattr(
        import_module(f"{__name__}.{module}"), attribute
    )
    return found
