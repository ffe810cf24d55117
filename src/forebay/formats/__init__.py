"""What a payload's bytes mean: one file a format, one contract for all (`contract.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import StructType

from forebay.errors import UnsupportedSqlError
from forebay.formats.avro_format import AvroDecoder
from forebay.formats.contract import BadRecord, Decoded, Decoder, Kind
from forebay.formats.csv_format import CsvDecoder
from forebay.formats.debezium_format import DebeziumDecoder, DebeziumKeyDecoder
from forebay.formats.json_format import JsonDecoder
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.raw_format import RawDecoder

__all__ = ["FORMATS", "BadRecord", "Decoded", "Decoder", "Kind", "decoder", "key_decoder"]

_DECODERS: dict[str, Callable[[StructType, Mapping[str, str]], Decoder]] = {
    "json": JsonDecoder,
    "avro": AvroDecoder,
    "protobuf": ProtobufDecoder,
    "debezium-json": DebeziumDecoder,
    "csv": CsvDecoder,
    "raw": RawDecoder,
}

FORMATS = tuple(_DECODERS)
"""The formats that `decoder()` knows, in the order in which the documentation lists them."""


def decoder(format: str, schema: StructType, options: Mapping[str, str]) -> Decoder:
    """The decoder of a format for a schema. Options of other parts of a source are ignored.

    UnsupportedSqlError if the format is unknown or cannot hold a column of the schema.
    """
    if format not in _DECODERS:
        known = ", ".join(FORMATS)
        raise UnsupportedSqlError(f"unknown format {format!r}", remedy=f"the formats are {known}")
    return _DECODERS[format](schema, options)


def key_decoder(format: str, schema: StructType, options: Mapping[str, str]) -> Decoder:
    """The decoder of a record's key: the same, but that a change's key is not itself a change."""
    if format == "debezium-json":
        return DebeziumKeyDecoder(schema, options)
    return decoder(format, schema, options)
