"""From Kafka's messages to rows: columns of the value, of the key and of the record, in the source's schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from forebay import column_types as types
from forebay.connectors.contract import RawRecord, RejectedRecord, Segment, SourceBatch
from forebay.connectors.event_time import LatestTime, beyond, micros
from forebay.errors import UnsupportedSqlError
from forebay.formats import FORMATS, BadRecord, Decoded, Decoder, RefusalKind, decoder, key_decoder
from forebay.formats.arrow_batches import readable
from forebay.formats.contract import Checked, NativeFormat, NativeLesson, Teacher
from forebay.formats.registered import REGISTERED, registered_decoder
from forebay.kafka.columns import CHANGE_LOG, HEADERS, layout
from forebay.kafka.traced import traced_of
from forebay.options import Options
from forebay.registry import Origin, origin

TIMES = (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE)
MAX_CHUNK_BYTES = 256 << 20  # Arrow's string columns end at 2 GiB; this is far below, and enough
FORMAT_OPTIONS = ("csv.", "avro.", "protobuf.")
"""How the options begin that are a format's own; the key's have `key.` in front."""


class RowDecoder:
    """Turns messages into a batch. Made once a task: compiling the schema costs more than a record.

    A key that is null is NULL in all its columns, where they may be NULL. A record whose value is skipped
    is skipped, whatever its key; one whose value is bad is rejected for that, whatever its key.
    """

    def __init__(self, columns: pa.Schema, options: Options, latest: LatestTime | None = None) -> None:
        """Records of an event time beyond `latest` are refused, as those are that do not decode."""
        self._format, self._key_format = options["format"], options["key.format"] or "raw"
        for name in (self._format, self._key_format):
            if name not in FORMATS:
                raise UnsupportedSqlError(
                    f"format '{name}' is not in this version", remedy="there are: " + ", ".join(FORMATS)
                )
        self._layout = layout(columns, options)
        if not self._layout.declared:
            raise UnsupportedSqlError(
                f"a source in format '{self._format}' needs its columns",
                remedy="CREATE SOURCE t (id BIGINT, …) …",
            )
        self.format_options = format_options(options, "")
        self._key_options = format_options(options, "key.")
        decoded = len(self._layout.values) or self._format == CHANGE_LOG
        self._values = self._value_decoder(origin(options)) if decoded else None
        self._keys = self._key_decoder(origin(options, "key")) if len(self._layout.keys) else None
        self.schema: pa.Schema = readable(self._layout.schema)
        self._latest = None if latest is None else _named(latest, self.schema)

    def _value_decoder(self, schemas: Origin | None) -> Decoder:
        if schemas is not None:
            return registered_decoder(self._format, self._layout.values, self.format_options, schemas)
        return decoder(self._format, self._layout.values, self.format_options)

    def _key_decoder(self, schemas: Origin | None) -> Decoder:
        keys = self._layout.keys
        if self._key_format == "raw" and len(keys) == 1:
            # The whole key is the column: a fault in it is one of "key".
            keys = pa.schema([pa.field("key", keys[0].type, keys[0].nullable)])
        if schemas is not None and self._key_format in REGISTERED:
            return registered_decoder(self._key_format, keys, self._key_options, schemas)
        return key_decoder(self._key_format, keys, self._key_options)

    def check(self) -> None:
        """What can be known before the first record: the registry answers, and its schema fits."""
        parts: tuple[object, ...] = (self._values, self._keys)
        for made in parts:
            if isinstance(made, Checked):
                made.check()

    def decode(
        self, messages: Sequence[Message], *, whole: bool = False, traced: bool = False
    ) -> Iterator[SourceBatch]:
        """One batch, or several where the payloads are very large; `whole`: rejected records with their bytes.

        `traced`: records that carry a trace are named.
        """
        start, size = 0, 0
        for index, message in enumerate(messages):
            size += len(message.value() or b"")
            if size > MAX_CHUNK_BYTES:
                yield self._decode(messages[start : index + 1], whole, traced)
                start, size = index + 1, 0
        if start < len(messages):
            yield self._decode(messages[start:], whole, traced)

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, in the full schema."""
        return self._decode([]).records

    def refuses_times_of(self, rows: pa.RecordBatch) -> bool:
        """Whether some of these rows are from further in the future than is taken."""
        return self._latest is not None and beyond(rows, self._latest) is not None

    # -- for the native reader ------------------------------------------------------------------------

    def lesson(self, header: bytes, of_key: bool) -> NativeLesson:
        """What the header of a value or a key means, as the native decoder learns it."""
        teacher: object = self._keys if of_key else self._values
        assert isinstance(teacher, Teacher)
        return teacher.lesson(header)

    @property
    def values(self) -> NativeFormat | None:
        """Of the value; None if there is nothing to decode in it."""
        if self._values is None:
            return None
        options = {**self.format_options, **self._values.native_options}
        return NativeFormat(self._format, self._values.schema, options)

    @property
    def keys(self) -> NativeFormat | None:
        """Of the key; None if it is left out, or taken as it is (origin "key")."""
        if self._keys is None or self._key_format == "raw":
            return None
        options = {**self._key_options, **self._keys.native_options}
        return NativeFormat(self._key_format, self._keys.schema, options)

    @property
    def origins(self) -> list[str]:
        """Where each column comes from.

        A number is a column of the value's decoder, `key:` and a number one of the key's, `key` the key as
        it is; the others are the record's own: partition, offset, timestamp, headers.
        """
        names = [self._origin(part, place) for part, place in self._layout.declared]
        behind = len(self._layout.values)
        for what, _ in self._layout.added:
            names.append(str(behind) if what == "value" else what)
            behind += what == "value"
        return names

    def _origin(self, part: str, place: int) -> str:
        if part == "value":
            return str(place)
        return "key" if self._key_format == "raw" else f"key:{place}"

    # -- decoding -------------------------------------------------------------------------------------

    def _decode(self, messages: Sequence[Message], whole: bool = False, traced: bool = False) -> SourceBatch:
        values = self._values.decode([m.value() for m in messages]) if self._values else None
        keys = self._decode_keys(messages) if self._keys else None
        bad = {item.index: item for item in values.bad} if values else {}
        skipped = set(values.skipped) if values else set()
        of_value = set(bad)
        if keys:
            bad = {i.index: i for i in keys.bad if i.index not in skipped} | bad
        rows = list(range(len(messages))) if values is None or values.good is None else values.good
        kept = [place for place, index in enumerate(rows) if index not in bad]
        owners = [rows[place] for place in kept]  # the message that each row is of
        taken = {
            "value": _take(values, kept) if values else [],
            "key": _take_keys(keys, owners) if keys else [],
        }
        arrays = [taken[part][place] for part, place in self._layout.declared]
        arrays += self._added([messages[index] for index in owners], taken["value"])
        records = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        future = self._future(records, owners)
        if future:
            bad |= future
            of_value |= set(future)
            kept = [place for place, index in enumerate(owners) if index not in future]
            owners = [owners[place] for place in kept]
            records = records.take(pa.array(kept, pa.int64()))
        good = Counter((m.topic(), m.partition()) for m in messages)
        if bad:
            good -= Counter((messages[index].topic(), messages[index].partition()) for index in bad)
        return SourceBatch(
            records,
            _rejected(messages, bad, of_value, whole) if bad else [],
            len(skipped),
            len(owners) - len(messages) + len(bad) + len(skipped),
            good=good,
            case_mismatches=len(_mismatched(values, keys) - bad.keys() - skipped),
            bytes=sum(len(m.value() or b"") + len(m.key() or b"") for m in messages),
            segments=list(_segments([messages[index] for index in owners])),
            traced=traced_of(messages, {index: each.kind for index, each in bad.items()}) if traced else (),
        )

    def _future(self, records: pa.RecordBatch, owners: Sequence[int]) -> dict[int, BadRecord]:
        """By message: those with a row of a time that is not taken. A record is refused whole, if it has two rows."""
        if self._latest is None or (mask := beyond(records, self._latest)) is None:
            return {}
        column, found = self._latest.column, dict[int, BadRecord]()
        times = micros(records.column(column)).to_pylist()
        for place in np.flatnonzero(np.asarray(mask)).tolist():
            reason = self._latest.reason(times[place])
            found[owners[place]] = BadRecord(owners[place], RefusalKind.FUTURE_TIMESTAMP, reason, column)
        return found

    def _added(self, messages: Sequence[Message], values: list[pa.Array]) -> Iterator[pa.Array]:
        behind = len(self._layout.values)
        for what, field in self._layout.added:
            if what == "value":
                yield values[behind]
                behind += 1
            else:
                yield _OF_RECORD[what](messages).cast(self.schema.field(field.name).type)

    def _decode_keys(self, messages: Sequence[Message]) -> Decoded:
        assert self._keys is not None
        found = [message.key() for message in messages]
        if self._key_format == "raw":
            return self._keys.decode(found)
        there = [index for index, key in enumerate(found) if key is not None]
        decoded = self._keys.decode([found[index] for index in there])
        bad = [_of_key(item, there[item.index]) for item in decoded.bad]
        required = next((field.name for field in self._layout.keys if not field.nullable), None)
        if required is not None and len(there) < len(found):
            path = f"key.{required}"
            reason = f"{path}: NOT NULL, but the record has no key"
            absent = [index for index, key in enumerate(found) if key is None]
            bad += [BadRecord(index, RefusalKind.SCHEMA_MISMATCH, reason, path) for index in absent]
        # A key's header line or comment is nothing that a record could be skipped for.
        bad += [
            BadRecord(
                there[index],
                RefusalKind.MALFORMED_PAYLOAD,
                "key: a header line or a comment, and no key",
                "key",
            )
            for index in decoded.skipped
        ]
        good = there if decoded.good is None else [there[index] for index in decoded.good]
        mismatched = [there[index] for index in decoded.case_mismatches]
        return Decoded(decoded.batch, good, bad, case_mismatches=mismatched)


def _segments(messages: Sequence[Message]) -> Iterator[Segment]:
    """Runs of rows of one partition, given the message of each row."""
    start = 0
    for place, run in groupby((message.topic(), message.partition()) for message in messages):
        end = start + sum(1 for _ in run)
        yield Segment(place, start, end)
        start = end


def _named(latest: LatestTime, schema: pa.Schema) -> LatestTime | None:
    """With the column as the schema spells it; None if it is none that carries a time."""
    for field in schema:
        if field.name.lower() == latest.column.lower() and field.type in TIMES:
            return latest._replace(column=field.name)
    return None


def _mismatched(*parts: Decoded | None) -> set[int]:
    return {index for part in parts if part is not None for index in part.case_mismatches}


def format_options(options: Options, prefix: str) -> dict[str, str]:
    """The options that are a format's own, as its decoder takes them; `prefix` is `key.` for the key's."""
    wanted = tuple(f"{prefix}{start}" for start in FORMAT_OPTIONS)
    return {
        key.removeprefix(prefix): str(options[key])
        for key in options
        if key.startswith(wanted) and options[key] is not None
    }


def _of_key(item: BadRecord, index: int) -> BadRecord:
    """The fault under the key's name: `key.id: …`, or `key: …` where it is not in one column."""
    path = f"key.{item.path}" if item.path else "key"
    return BadRecord(index, item.kind, f"key{'.' if item.path else ': '}{item.message}", path)


def _rejected(
    messages: Sequence[Message], bad: Mapping[int, BadRecord], of_value: set[int], whole: bool
) -> list[RejectedRecord]:
    found = []
    good: Counter[tuple[str, int]] = Counter()
    for index, m in enumerate(messages):
        place = (m.topic(), m.partition())
        if index not in bad:
            good[place] += 1
            continue
        why = bad[index]
        found.append(
            RejectedRecord(
                *place, m.offset(), str(why.kind), why.message, why.path, index not in of_value, good[place],
                raw_record(m) if whole else None,
            )
        )  # fmt: skip
    return found


def raw_record(message: Message) -> RawRecord:
    """A message, byte for byte."""
    known, stamp = message.timestamp()
    return RawRecord(stamp if known else None, message.key(), message.value(), message.headers() or ())


def _take(part: Decoded, rows: list[int]) -> list[pa.Array]:
    whole = len(rows) == part.batch.num_rows
    return [column if whole else column.take(pa.array(rows, pa.int64())) for column in part.batch.columns]


def _take_keys(part: Decoded, messages: list[int]) -> list[pa.Array]:
    """The key's columns, a row for each of these messages; NULL for those without a key."""
    if part.good is None and messages == list(range(part.batch.num_rows)):
        return list(part.batch.columns)
    places = {index: row for row, index in enumerate(part.good)} if part.good is not None else None
    wanted = [places.get(index) if places is not None else index for index in messages]
    return [column.take(pa.array(wanted, pa.int64())) for column in part.batch.columns]


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    stamps = [m.timestamp() for m in messages]
    return pa.array(
        [ms * 1000 if kind else None for kind, ms in stamps], pa.int64()
    )  # 0: the broker has none


def _headers(messages: Sequence[Message]) -> pa.Array:
    """A map has one value a key: the last, as Kafka's own `lastHeader` has it."""
    return pa.array([list(dict(m.headers() or ()).items()) for m in messages], HEADERS.type)


_OF_RECORD: dict[str, Any] = {
    "key": lambda messages: pa.array([m.key() for m in messages], pa.binary()),
    "partition": lambda messages: pa.array([m.partition() for m in messages], pa.int32()),
    "offset": lambda messages: pa.array([m.offset() for m in messages], pa.int64()),
    "timestamp": _timestamps,
    "headers": _headers,
}
