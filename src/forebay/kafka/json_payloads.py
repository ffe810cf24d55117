"""Values of formats that are no text, as JSON that a person can edit, and back in the same schema and frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.errors import MissingOptionError, OptionValueError, RecordError, StatementError
from forebay.formats.avro_datum import read_datum
from forebay.formats.avro_json import AvroJson
from forebay.formats.avro_plan import compile_resolved
from forebay.formats.avro_schema import parse, written_schema
from forebay.formats.contract import RefusalKind
from forebay.formats.framing import HEADER, schema_id
from forebay.formats.protobuf_framing import unframe
from forebay.formats.refusal import RefusedError, check_present, malformed, mismatch
from forebay.kafka.rows import format_options
from forebay.kafka.serializing import TYPES, avro_writer, fitting, framed_writer, protobuf_writer
from forebay.options import Options
from forebay.registry import Origin, RegisteredSchema, newest, origin, registry

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

READ_AS_JSON = ("avro", "protobuf")


@dataclass(frozen=True)
class RecordSchema:
    """How values of one schema are JSON, and JSON such values without their frame. What does not fit is a ValueError or any other."""

    read: Callable[[bytes, int], str]  # the payload, and where its frame ends
    write: Callable[[str], bytes]


class JsonPayloads:
    """Of one source. Schemas are asked for when they are met, and kept."""

    def __init__(self, options: Options) -> None:
        self._format = str(options["format"])
        self._given = format_options(options, "")
        self._origin: Origin | None = origin(options)
        self._known: dict[tuple[int, tuple[int, ...]], RecordSchema] = {}

    def text(self, payload: bytes | None) -> str:
        """A value as JSON. A RefusedError says where it cannot be read, a ForebayError why no schema can be had."""
        if payload is None or self._format != "protobuf":
            check_present(payload)  # of Protobuf, no bytes at all are a message
        assert payload is not None
        found, start = self._schema(payload)
        return found.read(payload, start)

    def payload(self, text: str, like: bytes | None = None) -> bytes:
        """JSON as a value: of the schema and in the frame of `like` if that can be read, else of the newest schema.

        OptionValueError if it does not fit.
        """
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionValueError(f"the value is not JSON: {error}", option="value") from None
        try:
            self.text(like)
            assert like is not None
            schema, start = self._schema(like)
        except (RefusedError, StatementError):
            return self._anew()(text)
        return like[:start] + fitting(schema.write, "the record's schema")(text)

    # -- inside ---------------------------------------------------------------------------------------

    def _schema(self, payload: bytes) -> tuple[RecordSchema, int]:
        """The schema of a value, and where its frame ends."""
        if self._origin is None:
            return self._learned((0, ()), lambda: self._declared()), 0
        if self._format == "protobuf":
            framed = unframe(payload)
            key = framed.schema_id, framed.indexes
            return self._learned(key, lambda: self._message(*key)), framed.start
        number = schema_id(payload)
        return self._learned((number, ()), lambda: self._registered(number)), HEADER

    def _learned(self, key: tuple[int, tuple[int, ...]], learn: Callable[[], RecordSchema]) -> RecordSchema:
        if key not in self._known:
            self._known[key] = learn()
        return self._known[key]

    def _declared(self) -> RecordSchema:
        """What the statement says."""
        if self._format == "avro":
            text = written_schema(self._given)
            if text is None:
                raise MissingOptionError("the source has no 'avro.schema'", option="avro.schema")
            return _avro(RegisteredSchema(0, "AVRO", text))
        from forebay.formats.protobuf_schema import find_message, given_files

        return _protobuf(find_message(given_files(self._given), self._given))

    def _registered(self, number: int) -> RecordSchema:
        schema = self._asked(number)
        return _JSON if self._format == "json" else _avro(schema)

    def _message(self, number: int, indexes: tuple[int, ...]) -> RecordSchema:
        from forebay.formats.protobuf_files import FilesError, add_files
        from forebay.formats.protobuf_schema import message_at, registered_files

        schema = self._asked(number)
        try:
            files = add_files(registered_files(schema.text, dict(schema.references)))
        except (ValueError, FilesError) as error:
            raise mismatch(f"the schema {number} cannot be loaded: {error}") from None
        found = message_at(files, indexes)
        if found is None:
            raise malformed(f"the schema {number} has no message at {list(indexes)}")
        return _protobuf(found)

    def _asked(self, number: int) -> RegisteredSchema:
        assert self._origin is not None
        try:
            schema = registry(self._origin.settings).schema(number)
        except RecordError as error:
            raise RefusedError(RefusalKind(error.kind), error.message) from None
        if schema.type != self._type:
            raise mismatch(f"the schema {number} is of type {schema.type}, and not {self._type}")
        return schema

    @property
    def _type(self) -> str:
        return TYPES.get(self._format, "JSON")

    def _anew(self) -> Callable[[str], bytes]:
        """For a record whose own schema cannot be known."""
        if self._origin is None:
            return fitting(self._learned((0, ()), self._declared).write, "the source's schema")
        found = newest(self._origin, self._type)
        if len(found) != 1:
            raise MissingOptionError(
                f"the record's own schema cannot be read, and its source has {len(found)} newest ones",
                option="value",
                remedy="give the value in hexadecimal",
            )
        [version] = found
        if self._format == "json":
            frame = bytes(1) + version.schema.id.to_bytes(HEADER - 1, "big")
            return lambda text: frame + _JSON.write(text)
        called = f"version {version.version} of '{version.subject}'"
        write = framed_writer(version.schema, called, self._given.get("protobuf.message"), strict=True)
        return lambda text: write(json.loads(text, parse_float=Decimal if self._format == "avro" else None))


def json_payloads(options: Options) -> JsonPayloads | None:
    """Of a source whose values are no text; None where they are text already."""
    if options["format"] in READ_AS_JSON or (options["format"] == "json" and origin(options) is not None):
        return JsonPayloads(options)
    return None


def dumped(value: Any) -> str:
    """On several lines, for a person. Decimals keep their digits."""
    return _dump(value, "\n")


def _dump(value: Any, line: str) -> str:
    inner = line + "  "
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict) and value:
        fields = (
            f"{json.dumps(name, ensure_ascii=False)}: {_dump(item, inner)}" for name, item in value.items()
        )
        return "{" + inner + f",{inner}".join(fields) + line + "}"
    if isinstance(value, list) and value:
        return "[" + inner + f",{inner}".join(_dump(item, inner) for item in value) + line + "]"
    return json.dumps(value, ensure_ascii=False)


def _avro(schema: RegisteredSchema) -> RecordSchema:
    parsed = parse(schema.text, [text for _, text in schema.references], "the record's schema")
    plan, values = compile_resolved(parsed, None, pa.schema([])), AvroJson(parsed)
    write = avro_writer(schema, strict=True)
    return RecordSchema(
        lambda payload, start: dumped(values.shown(read_datum(plan, payload, start))),
        lambda text: write(json.loads(text, parse_float=Decimal)),
    )


def _protobuf(descriptor: Descriptor) -> RecordSchema:
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    from forebay.formats.protobuf_explain import explain
    from forebay.formats.protobuf_plan import compile_plan

    kind = message_factory.GetMessageClass(descriptor)

    def read(payload: bytes, start: int) -> str:
        body = payload[start:]
        try:
            message = kind.FromString(body)
        except DecodeError:
            raise explain(compile_plan(descriptor, pa.schema([]), complete=False), body) from None
        known = kind.FromString(body)
        known.DiscardUnknownFields()
        if known.ByteSize() != message.ByteSize():
            raise mismatch("it has fields that its schema does not have: as JSON they would be lost")
        try:
            made = json_format.MessageToJson(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                ensure_ascii=False,
            )
            return str(made)
        except Exception as error:  # a time that no calendar has, an Any of a type that is not here
            raise mismatch(f"there is no JSON for it: {error}") from None

    write = protobuf_writer(descriptor)
    return RecordSchema(read, lambda text: write(json.loads(text)))


def _read_text(payload: bytes, start: int) -> str:
    try:
        return payload[start:].decode()
    except UnicodeDecodeError as error:
        raise malformed(f"it is not UTF-8, at byte {start + error.start}") from None


_JSON = RecordSchema(_read_text, str.encode)
