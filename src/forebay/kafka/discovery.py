"""The columns of a source whose statement has none: from its schema, from the registry, or from a sample.

And what a sample says about those that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from forebay import column_types as types
from forebay.connectors.contract import Discovered, SourceConfig
from forebay.errors import NoColumnsError, UnsupportedSqlError
from forebay.formats import json_sample
from forebay.formats.avro_columns import avro_columns
from forebay.formats.avro_schema import parse, written_schema
from forebay.formats.case_mismatch import CaseCheck, Mismatch
from forebay.formats.json_text import parse_fast
from forebay.formats.protobuf_columns import protobuf_columns
from forebay.formats.protobuf_files import add_files
from forebay.formats.protobuf_schema import (
    MESSAGE,
    SOURCES,
    find_message,
    given_files,
    message_at,
    registered_files,
)
from forebay.formats.refusal import RefusedError, shorten
from forebay.kafka.columns import CHANGE_LOG, layout
from forebay.options import Options
from forebay.registry import Origin, Version, newest, origin

SAMPLE = 1_000  # records
GLANCE = 100  # of them, for a note: a statement that needs none should not wait for more
VALUE = pa.schema([pa.field("value", types.BINARY)])
ReadValues = Callable[[int], Sequence[bytes | None]]
"""The newest values of a source, at most so many."""


def discover(options: Options, read_values: ReadValues) -> Discovered | None:
    """None where a format has no way to tell: then the columns must be declared."""
    texts = {key: str(options[key]) for key in options if options[key] is not None}
    schemas = origin(options)
    match options["format"]:
        case "avro" if (text := written_schema(texts)) is not None:
            return Discovered(avro_columns(parse(text)), "the schema of the statement")
        case "avro" if schemas is not None:
            version = _newest(schemas, "AVRO")
            references = [text for _, text in version.schema.references]
            return Discovered(
                avro_columns(parse(version.schema.text, references, f"the schema of {version.subject}")),
                _named(version),
            )
        case "protobuf" if any(texts.get(key) for key in SOURCES):
            message = find_message(given_files(texts), texts)
            return Discovered(protobuf_columns(message), f"the message {message.full_name} of the statement")
        case "protobuf" if schemas is not None:
            return _from_registered_protobuf(schemas, texts)
        case "json":
            return _from_sample(read_values, framed=schemas is not None)
    return None


def _newest(schemas: Origin, kind: str) -> Version:
    found = newest(schemas, kind)
    if not found:
        subjects = ", ".join(schemas.subjects) or "any subject"
        raise NoColumnsError(f"the registry has no schema of type {kind} under {subjects}")
    if len(found) > 1:
        raise NoColumnsError(
            "the topics' newest schemas differ: " + ", ".join(_named(version) for version in found)
        )
    return found[0]


def _named(version: Version) -> str:
    return f"{version.subject}, version {version.version}, schema id {version.schema.id}"


def _from_registered_protobuf(schemas: Origin, texts: dict[str, str]) -> Discovered:
    version = _newest(schemas, "PROTOBUF")
    try:
        files = registered_files(version.schema.text, dict(version.schema.references))
    except ValueError as error:
        raise UnsupportedSqlError(f"the schema of {version.subject} cannot be loaded: {error}") from None
    first = message_at(add_files(files), [0])
    message = find_message(files, texts) if texts.get(MESSAGE) or first is None else first
    return Discovered(protobuf_columns(message), f"the message {message.full_name} of {_named(version)}")


def _from_sample(read_values: ReadValues, *, framed: bool) -> Discovered:
    values = [value[5:] if framed and value else value for value in read_values(SAMPLE)]
    found = json_sample.guess(values)
    if not len(found.columns):
        left_out = ", ".join(found.left_out[:5])
        why = (
            f"left out: {left_out}"
            if left_out
            else f"none of {len(values):,} records is a JSON object with fields"
        )
        raise NoColumnsError(
            f"no columns can be taken from a sample: {why if values else 'there are no records'}"
        )
    notes = tuple(f"left out: {item}" for item in found.left_out)
    return Discovered(found.columns, f"a sample of {found.records:,} records", notes)


def case_notes(columns: pa.Schema, options: Options, read_values: ReadValues) -> tuple[str, ...]:
    """Which columns are NULL in a few of the newest records only because these write the name in another case."""
    check, changes = CaseCheck(layout(columns, options).values), options["format"] == CHANGE_LOG
    found: Counter[Mismatch] = Counter()
    records = 0
    for value in read_values(GLANCE):
        payload = value[5:] if value and not changes and origin(options) is not None else value
        try:
            record = parse_fast(payload) if payload else None
        except RefusedError:
            continue
        rows = _images(record) if changes else [record]
        if any(isinstance(row, dict) for row in rows):
            records += 1
            found.update({mismatch for row in rows for mismatch in check(row)})
    return tuple(
        f"note: column '{column}' is NULL in {count:,} of {records:,} sampled records: they have a field "
        f"'{shorten(field)}', and names match exactly, case included; declare the column as '{shorten(field)}'"
        for (column, field), count in sorted(found.items())
    )


def _images(change: object) -> list[object]:
    """The rows of a change, as they were and as they are."""
    if isinstance(change, dict) and "op" not in change:
        change = change.get("payload")
    return [change.get("before"), change.get("after")] if isinstance(change, dict) else []


def raw_config(config: SourceConfig) -> SourceConfig:
    """The same source read as raw values, for a sample."""
    kept = {
        key: text
        for key, text in config.options.items()
        if not key.startswith(("schema.registry.", "key.", "include.", "csv.", "event.time."))
    }
    return replace(config, options=kept | {"format": "raw"}, schema=VALUE)
