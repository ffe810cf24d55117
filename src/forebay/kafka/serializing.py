"""JSON values to messages of a registry's schema, framed as Confluent's serializers do.

Not those serializers themselves: of a Protobuf schema by its id they want the descriptor, where most registries have the
text; and they cannot check a value against a schema that is not registered yet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka.schema_registry import prefix_schema_id_serializer
from confluent_kafka.schema_registry.serde import SchemaId

from forebay.errors import MissingOptionError, OptionValueError, UnknownObjectError
from forebay.formats.avro_json import AvroJson
from forebay.formats.avro_schema import parse
from forebay.registry import RegisteredSchema, subject_name
from forebay.registry.client import RegistryClient

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

T = TypeVar("T")
Serialize = Callable[[Any], bytes]
TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF"}


def serializer(
    format: str,
    registry: RegistryClient,
    topic: str,
    *,
    text: str | None = None,
    subject: str | None = None,
    message: str | None = None,
    dry_run: bool = False,
) -> Serialize:
    """Values of the schema in `text`, which is registered; or of the newest one that the subject has.

    The subject is `<topic>-value` unless given. `message` names one of the messages of a Protobuf schema. With `dry_run`
    nothing is registered.
    """
    named = subject or str(subject_name("topic", topic, None))
    schema = _schema(format, registry, named, text, dry_run)
    if schema.type != TYPES[format]:
        raise OptionValueError(
            f"'{named}' holds {schema.type}, and not {TYPES[format]}",
            option="format",
            remedy=f"--format {schema.type.lower()}",
        )
    return framed_writer(schema, f"the schema of '{named}'", message)


def framed_writer(
    schema: RegisteredSchema, called: str, message: str | None = None, *, strict: bool = False
) -> Serialize:
    """Values of a registry's schema, with its frame. `called` is the schema's name in an OptionValueError.

    With `strict`, an Avro record may have no fields that the schema does not have; a Protobuf message never has.
    """
    indexes: list[int] | None = None
    if schema.type == "AVRO":
        write = avro_writer(schema, strict=strict)
    else:
        descriptor = _described(schema, message)
        write, indexes = protobuf_writer(descriptor), _indexes(descriptor)
    checked = fitting(write, called)
    header = SchemaId(schema.type, schema.id, None, indexes)
    return lambda value: bytes(prefix_schema_id_serializer(checked(value), None, header))


def fitting(write: Callable[[T], bytes], called: str) -> Callable[[T], bytes]:
    """The same, with an OptionValueError for a value that does not fit."""

    def serialize(value: T) -> bytes:
        try:
            return write(value)
        except Exception as error:  # fastavro and protobuf raise whatever the value led to
            raise OptionValueError(f"does not fit {called}: {error}", option="value") from None

    return serialize


def _schema(
    format: str, registry: RegistryClient, subject: str, text: str | None, dry_run: bool
) -> RegisteredSchema:
    if text is None:
        try:
            return registry.version(subject).schema
        except UnknownObjectError:
            raise MissingOptionError(
                f"there is no subject '{subject}' in the registry",
                option="subject",
                remedy="--schema-file names a schema to register; --subject another subject (forebay schema ls)",
            ) from None
    given = RegisteredSchema(0, TYPES[format], text)
    return given if dry_run else registry.schema(registry.register(subject, given))


def avro_writer(schema: RegisteredSchema, *, strict: bool = False) -> Serialize:
    """JSON values (`formats/avro_json.py`) to datums, without a frame."""
    import fastavro

    known: dict[str, Any] = {}
    references = [text for _, text in schema.references]
    try:
        for text in references:
            fastavro.parse_schema(json.loads(text), known)
        parsed = fastavro.parse_schema(json.loads(schema.text), known)
        values = AvroJson(parse(schema.text, references, "it"), strict=strict)
    except Exception as error:  # json's, fastavro's, and what a strange schema leads to
        raise OptionValueError(f"that is no Avro schema: {error}", option="schema.file") from None

    def write(value: Any) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, values.taken(value))
        return body.getvalue()

    return write


def _described(schema: RegisteredSchema, message: str | None) -> Descriptor:
    from forebay.formats.protobuf_schema import MESSAGE, find_message, registered_files

    try:
        files = registered_files(schema.text, dict(schema.references))
    except ValueError as error:
        raise OptionValueError(f"that is no Protobuf schema: {error}", option="schema.file") from None
    return find_message(files, {MESSAGE: message} if message else {})


def protobuf_writer(descriptor: Descriptor) -> Serialize:
    """JSON values (Protobuf's own JSON) to messages, without a frame."""
    from google.protobuf import json_format, message_factory

    kind = message_factory.GetMessageClass(descriptor)
    return lambda value: json_format.ParseDict(value, kind()).SerializeToString()


def _indexes(descriptor: Descriptor) -> list[int]:
    """The way from the schema's messages to one of them: [2, 0] is the first inside of the third."""
    outer = descriptor.containing_type
    beside = outer.nested_types if outer else descriptor.file.message_types_by_name.values()
    here = [each.full_name for each in beside].index(descriptor.full_name)
    return [*(_indexes(outer) if outer else ()), here]
