"""From Kafka's messages to rows: value columns, key column, metadata columns, in the source's schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.connectors.contract import RejectedRecord, SourceBatch
from forebay.errors import OptionConflictError, UnsupportedSqlError
from forebay.formats import FORMATS, Decoded, Decoder, decoder
from forebay.formats.avro_format import AvroDecoder
from forebay.formats.batches import arrow_schema
from forebay.formats.framed import FramedDecoder
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_registered import RegisteredFiles
from forebay.formats.protobuf_schema import SOURCES as PROTOBUF_SCHEMAS
from forebay.options import Options
from forebay.registry import origin

METADATA = StructType(
    [
        StructField("_partition", IntegerType(), nullable=False),
        StructField("_offset", LongType(), nullable=False),
        StructField("_timestamp", TimestampType(), nullable=True),
    ]
)
HEADERS = StructField("_headers", MapType(StringType(), BinaryType()), nullable=True)
RAW_COLUMNS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
MAX_CHUNK_BYTES = 256 << 20  # Arrow's string columns end at 2 GiB; this is far below, and enough


def full_schema(columns: StructType, options: Options) -> StructType:
    """The declared columns and what `include.*` adds; a clash of names is an error."""
    added = [*(METADATA.fields if options["include.metadata"] else ())]
    if options["include.headers"]:
        added.append(HEADERS)
    taken = {field.name.lower() for field in columns.fields}
    for field in added:
        if field.name in taken:
            raise UnsupportedSqlError(
                f"the column '{field.name}' is one that 'include.metadata' or 'include.headers' adds",
                remedy="rename the column, or leave that option out",
            )
    return StructType([*columns.fields, *added])


class RowDecoder:
    """Turns messages into a batch. Made once a task: compiling the schema costs more than a record."""

    def __init__(self, columns: StructType, options: Options) -> None:
        name = options["format"]
        if name not in FORMATS:
            raise UnsupportedSqlError(
                f"format '{name}' is not in this version", remedy="there are: " + ", ".join(FORMATS)
            )
        if options["key.format"] is not None:
            raise UnsupportedSqlError(
                "'key.format' is not in this version", remedy="FORMAT RAW gives the key as it is"
            )
        self._options = options
        self._key_index: int | None = None
        if name == "raw":
            columns = self._raw_columns(columns)
        elif not columns.fields:
            raise UnsupportedSqlError(
                f"a source in format '{name}' needs its columns", remedy="CREATE SOURCE t (id BIGINT, …) …"
            )
        self._columns = columns
        self.format_options = {
            key: str(options[key])
            for key in options
            if key.startswith(("csv.", "avro.", "protobuf.")) and options[key] is not None
        }
        value_fields = [f for i, f in enumerate(columns.fields) if i != self._key_index]
        self._values = self._decoder(name, StructType(value_fields)) if value_fields else None
        key_fields = [f for i, f in enumerate(columns.fields) if i == self._key_index]
        self._keys = decoder("raw", StructType(key_fields), {}) if key_fields else None

    def _decoder(self, name: str, columns: StructType) -> Decoder:
        schemas = origin(self._options)
        if schemas is None:
            return decoder(name, columns, self.format_options)
        if name == "protobuf":
            given = next((key for key in self.format_options if key in PROTOBUF_SCHEMAS), None)
            if given is not None:
                raise OptionConflictError(
                    f"'{given}' and 'schema.registry.url' both say which schema records have", option=given
                )
            return ProtobufDecoder(columns, self.format_options, RegisteredFiles(schemas))
        return FramedDecoder(name, columns, self.format_options, schemas)

    def check(self) -> None:
        """What can be known before the first record: the registry answers, and its schema fits."""
        if isinstance(self._values, FramedDecoder):
            self._values.check()

    def _raw_columns(self, columns: StructType) -> StructType:
        columns = columns if columns.fields else RAW_COLUMNS
        names = [field.name for field in columns.fields]
        if not set(names) <= {"key", "value"}:
            raise UnsupportedSqlError(
                "format 'raw' has the columns key and value",
                remedy="CREATE SOURCE t (key BINARY, value BINARY) …, each BINARY or STRING",
            )
        self._key_index = names.index("key") if "key" in names else None
        return columns

    def decode(self, messages: Sequence[Message]) -> Iterator[SourceBatch]:
        """One batch, or several where the payloads are very large."""
        start, size = 0, 0
        for index, message in enumerate(messages):
            size += len(message.value() or b"")
            if size > MAX_CHUNK_BYTES:
                yield self._decode(messages[start : index + 1])
                start, size = index + 1, 0
        if start < len(messages):
            yield self._decode(messages[start:])

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, in the full schema."""
        return self._decode([]).records

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return arrow_schema(full_schema(self._columns, self._options))

    def lesson(self, schema_id: int) -> tuple[str | None, str, str]:
        """What a schema id means, as the native decoder learns it."""
        assert isinstance(self._values, FramedDecoder)
        return self._values.lesson(schema_id).native

    @property
    def values(self) -> tuple[str, pa.Schema, dict[str, str]] | None:
        """The value's format, columns and options, as the native decoder wants them; None if there is none."""
        if self._values is None:
            return None
        name, more = self._options["format"], {}
        if isinstance(self._values, FramedDecoder):
            more = {"framed": "true"}
        elif isinstance(self._values, AvroDecoder | ProtobufDecoder):
            more = {f"{name}.plan": self._values.plan}
        return name, self._values.schema, self.format_options | more

    @property
    def origins(self) -> list[str]:
        """Where each column comes from, as the native reader wants it: a number is a column of the value."""
        value_columns = itertools.count()
        declared = [
            "key" if index == self._key_index else str(next(value_columns))
            for index in range(len(self._columns.fields))
        ]
        metadata = ["partition", "offset", "timestamp"] if self._options["include.metadata"] else []
        return [*declared, *metadata, *(["headers"] if self._options["include.headers"] else [])]

    def _decode(self, messages: Sequence[Message]) -> SourceBatch:
        values = self._values.decode([m.value() for m in messages]) if self._values else None
        keys = self._keys.decode([m.key() for m in messages]) if self._keys else None
        bad = {item.index: item for part in (keys, values) if part for item in part.bad}
        good = [index for index in range(len(messages)) if index not in bad] if bad else None
        order = list(self._order(keys, values))
        arrays = [_pick(part, column, good) for part, column in order]
        fields = [part.batch.schema.field(column) for part, column in order]
        kept = messages if good is None else [messages[index] for index in good]
        if self._options["include.metadata"]:
            arrays += _metadata(kept)
            fields += _METADATA_FIELDS
        if self._options["include.headers"]:
            arrays.append(pa.array([_headers(m) for m in kept], _HEADERS_FIELD.type))
            fields.append(_HEADERS_FIELD)
        rejected = [
            RejectedRecord(m.topic(), m.partition(), m.offset(), str(bad[index].kind), bad[index].message)
            for index in sorted(bad)
            for m in (messages[index],)
        ]
        return SourceBatch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), rejected)

    def _order(self, keys: Decoded | None, values: Decoded | None) -> Iterator[tuple[Decoded, int]]:
        """Which part, and which of its columns, each declared column comes from."""
        taken = 0
        for index in range(len(self._columns.fields)):
            if index == self._key_index:
                assert keys is not None
                yield keys, 0
            else:
                assert values is not None
                yield values, taken
                taken += 1


def _pick(part: Decoded, column: int, good: list[int] | None) -> pa.Array:
    """One column of the rows that are good in every part."""
    array = part.batch.column(column)
    if good is None or part.good == good:
        return array
    places = {index: row for row, index in enumerate(part.good)} if part.good is not None else None
    return array.take([places[index] if places else index for index in good])


def _metadata(messages: Sequence[Message]) -> list[pa.Array]:
    stamps = [m.timestamp() for m in messages]
    micros = [ms * 1000 if kind else None for kind, ms in stamps]  # kind 0: the broker has no timestamp
    return [
        pa.array([m.partition() for m in messages], pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array(micros, pa.int64()).cast(_METADATA_FIELDS[2].type),
    ]


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """A map has one value a key: the last, as Kafka's own `lastHeader` has it."""
    return list(dict(message.headers() or ()).items())


_METADATA_FIELDS = list(arrow_schema(METADATA))
_HEADERS_FIELD = arrow_schema(StructType([HEADERS])).field(0)
