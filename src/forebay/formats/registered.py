"""Decoders of payloads that name their schema by a registry's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from forebay.errors import OptionConflictError, RecordError
from forebay.formats.contract import Decoder, RefusalKind
from forebay.formats.framed import FramedDecoder
from forebay.formats.protobuf_format import ProtobufDecoder
from forebay.formats.protobuf_schema import MESSAGE, SOURCES, registered_files
from forebay.formats.refusal import RefusedError, mismatch
from forebay.formats.schema_evolution import Watch
from forebay.registry import Origin, RegisteredSchema, registry

REGISTERED = ("avro", "json", "protobuf")
"""The formats that have schemas in a registry."""


def registered_decoder(format: str, schema: pa.Schema, options: Mapping[str, str], origin: Origin) -> Decoder:
    """UnsupportedSqlError if the format is none of those."""
    if format != "protobuf":
        return FramedDecoder(format, schema, options, origin)
    given = next((key for key in options if key in SOURCES), None)
    if given is not None:
        raise OptionConflictError(
            f"'{given}' and 'schema.registry.url' both say which schema records have", option=given
        )
    watched = origin.evolution.policy != "ignore" and bool(origin.evolution.since)
    met = Watching(origin, schema, options.get(MESSAGE)) if watched else None
    return ProtobufDecoder(schema, options, RegisteredFiles(origin), met)


class Watching:
    """Holds each schema that is met against those that the source is from. Pickles."""

    def __init__(self, origin: Origin, columns: pa.Schema, message: str | None) -> None:
        self._made_from = (origin, columns, message)
        self._origin = origin
        self._watch = Watch(origin, columns, message)

    def __reduce__(self) -> tuple[Any, ...]:
        return Watching, self._made_from

    def __call__(self, number: int, message: str, reason: str) -> None:
        schema = registry(self._origin.settings).schema(number)
        if reason:
            raise self._watch.changed(schema, reason)
        self._watch.check(schema, message)


@lru_cache(maxsize=1024)  # protoc takes longer than a task may, and a decoder is made for every task
def _files(schema: RegisteredSchema) -> bytes:
    return registered_files(schema.text, dict(schema.references))


@dataclass(frozen=True)
class RegisteredFiles:
    """From a schema id to Protobuf's FileDescriptorSet. Pickles. AuthError if the registry does not let us in."""

    origin: Origin

    def __call__(self, number: int) -> bytes:
        try:
            schema = registry(self.origin.settings).schema(number)
        except RecordError as error:
            raise RefusedError(RefusalKind(error.kind), error.message) from None
        if schema.type != "PROTOBUF":
            raise mismatch(
                f"the schema {number} is of type {schema.type}, and the source's format is protobuf"
            )
        try:
            return _files(schema)
        except ValueError as error:
            raise mismatch(f"the schema {number} cannot be loaded: {error}") from None
