"""Formats whose payloads name their schema in a registry: avro and json, behind the frame of `framing.py`.

One topic, and one batch, may hold any number of schemas. Each is learned when its id is first met: a plan
to read it by, or the reason why its records are refused. The registry is asked before a batch is decoded
and never for a record, so that one which is away or refuses us is an error of the task, not of records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from forebay.errors import RecordError, StatementError, UnsupportedSqlError
from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.avro_datum import read_datum
from forebay.formats.avro_plan import AvroPlan, compile_resolved
from forebay.formats.avro_schema import Avro, parse, written_schema
from forebay.formats.avro_values import convert_record
from forebay.formats.contract import Decoded, NativeLesson, RefusalKind
from forebay.formats.framing import HEADER, schema_id
from forebay.formats.json_format import JsonDecoder
from forebay.formats.refusal import RefusedError
from forebay.formats.schema_evolution import Watch
from forebay.registry import Origin, RegisteredSchema, newest, registry


@dataclass(frozen=True)
class Lesson:
    """What an id means for a source: a plan, or why its records are refused."""

    plan: AvroPlan | None
    kind: str = ""
    message: str = ""

    @property
    def native(self) -> NativeLesson:
        """As the native decoder's `learn` takes it, after the header."""
        text = None if self.plan is None else json.dumps(self.plan, ensure_ascii=False, separators=(",", ":"))
        return NativeLesson(text, self.kind, self.message)


class _SchemaReading(Protocol):
    """A format behind the frame."""

    type: str  # as the registry calls it

    @property
    def mismatched(self) -> bool:
        """Whether the last row has a case mismatch."""
        ...

    def check(self) -> None: ...
    def plan(self, schema: RegisteredSchema) -> AvroPlan: ...
    def row(self, plan: AvroPlan, payload: bytes) -> list[Any]: ...


class FramedDecoder:
    """Made for a task: it keeps what it has learned. Asks for the reader's schema when it is made."""

    native_options = MappingProxyType({"framed": "true"})

    def __init__(self, format: str, schema: pa.Schema, options: Mapping[str, str], origin: Origin) -> None:
        self.schema = readable(schema)
        self.format = format
        self._made_from = (format, schema, dict(options), origin)
        self._registry = registry(origin.settings)
        self._lessons: dict[int, Lesson] = {}
        self._watch = Watch.of(origin, schema)
        self._reading: _SchemaReading
        if format == "avro":
            own = self._watch.newest if self._watch else None
            self._reading = _AvroReading(schema, options, origin, own)
        elif format == "json":
            self._reading = _JsonReading(schema, options)
        else:
            raise UnsupportedSqlError(
                f"format '{format}' does not go with a schema registry",
                remedy="leave 'schema.registry.url' out; avro and json have one",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return FramedDecoder, self._made_from

    def check(self) -> None:
        """Raise if the registry does not answer, or the reader's schema does not fit the columns."""
        self._registry.check()
        self._reading.check()

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        for number in _ids(values):
            self._lesson(number)
        return decode_each(values, self.schema, self._record, lambda: self._reading.mismatched)

    def lesson(self, header: bytes) -> NativeLesson:
        return self._lesson(schema_id(header)).native

    def _lesson(self, number: int) -> Lesson:
        if number not in self._lessons:
            self._lessons[number] = self._learned(number)
        return self._lessons[number]

    def _learned(self, number: int) -> Lesson:
        try:
            schema = self._registry.schema(number)
        except RecordError as error:
            return Lesson(None, error.kind, error.message)
        try:
            if schema.type != self._reading.type:
                raise UnsupportedSqlError(
                    f"it is of type {schema.type}, and the source's format is {self.format}"
                )
            plan = self._reading.plan(schema)
            if self._watch is not None:
                self._watch.check(schema)
            return Lesson(plan)
        except StatementError as error:
            if self._watch is not None:
                raise self._watch.changed(schema, error.message) from None
            return Lesson(
                None, RefusalKind.SCHEMA_MISMATCH, f"schema id {number} does not fit: {error.message}"
            )

    def _record(self, payload: bytes | None) -> list[Any]:
        lesson = self._lessons[schema_id(payload)]
        if lesson.plan is None:
            raise RefusedError(RefusalKind(lesson.kind), lesson.message)
        assert payload is not None
        return self._reading.row(lesson.plan, payload)


class _AvroReading:
    """Resolves each writer's schema to the reader's.

    That is `avro.schema` if it is given, and then every column must be one of its fields. Otherwise it is
    the one that the source is from (`own`), where other schemas are held against that, or the subject's
    newest, which has the names, aliases and defaults that its owners want read; a column that it no longer
    has is still read from the records that do. Without a subject, or with several whose newest schemas
    differ, the columns alone say what is read.
    """

    type = "AVRO"
    mismatched = False  # names are resolved by the schemas

    def __init__(
        self, schema: pa.Schema, options: Mapping[str, str], origin: Origin, own: RegisteredSchema | None
    ) -> None:
        self._columns = schema
        self._names = schema.names
        given = written_schema(options)
        self._closed = given is not None
        self._reader = RegisteredSchema(0, "AVRO", given) if given is not None else own or _newest(origin)

    def check(self) -> None:
        if self._reader is None:
            return
        try:
            self.plan(self._reader)
        except StatementError as error:
            if self._closed:
                raise
            raise UnsupportedSqlError(
                f"the newest schema of the subject (id {self._reader.id}) does not fit: {error.message}",
                remedy=error.remedy,
            ) from None

    def plan(self, schema: RegisteredSchema) -> AvroPlan:
        return _compiled(schema, self._reader, self._columns, self._closed)

    def row(self, plan: AvroPlan, payload: bytes) -> list[Any]:
        found = convert_record(plan, read_datum(plan, payload, HEADER))
        return [found.get(name) for name in self._names]


class _JsonReading:
    """The id must be that of a JSON schema; the rest is plain JSON, and the columns say what is taken."""

    type = "JSON"

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self._json = JsonDecoder(schema, options)

    def check(self) -> None:
        """Nothing: the columns are not held to the JSON schema."""

    def plan(self, schema: RegisteredSchema) -> AvroPlan:
        return {}

    @property
    def mismatched(self) -> bool:
        return self._json.mismatched

    def row(self, plan: AvroPlan, payload: bytes) -> list[Any]:
        return self._json.row(payload[HEADER:])


def _newest(origin: Origin) -> RegisteredSchema | None:
    found = newest(origin, "AVRO")
    return found[0].schema if len(found) == 1 else None


@lru_cache(maxsize=1024)  # a decoder is made for every task, and a plan is the same for all of them
def _compiled(
    writer: RegisteredSchema, reader: RegisteredSchema | None, columns: pa.Schema, closed: bool
) -> AvroPlan:
    resolved = None if reader is None else _parsed(reader)
    return compile_resolved(_parsed(writer), resolved, columns, closed=closed)


def _parsed(schema: RegisteredSchema) -> Avro:
    origin = f"schema id {schema.id}" if schema.id else "'avro.schema'"
    return parse(schema.text, [text for _, text in schema.references], origin)


def _ids(values: Sequence[bytes | None]) -> set[int]:
    found = set()
    for value in values:
        try:
            found.add(schema_id(value))
        except RefusedError:
            continue
    return found
