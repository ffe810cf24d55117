"""Values that name their schema in a registry, edited as JSON: the frame stays, and a new one is of the newest schema."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from support import Stack, unique

from forebay.formats.refusal import RefusedError
from forebay.kafka.json_payloads import JsonPayloads
from forebay.kafka.options import KAFKA

MESSAGES = """syntax = "proto3";
message Other { int32 x = 1; }
message Orders { message Order { int64 id = 1; double price = 2; %s } }"""
OBJECT = '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object"}'
NESTED = b"\x04\x02\x00"  # two indexes: the second message, and the first inside of it


def payloads_of(stack: Stack, topic: str, format: str, **more: str) -> JsonPayloads:
    given = {
        "bootstrap.servers": stack.bootstrap_servers,
        "topic": topic,
        "group.id": topic,
        "format": format,
        "schema.registry.url": stack.schema_registry_url,
    }
    return JsonPayloads(KAFKA.bind(given | {name.replace("_", "."): text for name, text in more.items()}))


def frame(number: int) -> bytes:
    return bytes(1) + number.to_bytes(4, "big")


def test_protobuf_keeps_its_schema_id_and_its_message(stack: Stack, registry: SchemaRegistryClient) -> None:
    topic = unique("orders")
    old, new = (
        registry.register_schema(f"{topic}-value", Schema(MESSAGES % more, "PROTOBUF"))
        for more in ("", "string note = 3;")
    )
    values = payloads_of(stack, topic, "protobuf", protobuf_message="Order")
    before = frame(old) + NESTED + b"\x08\x05"
    assert json.loads(values.text(before)) == {"id": "5", "price": 0.0}
    assert values.payload('{"id": 6}', before) == frame(old) + NESTED + b"\x08\x06"
    assert values.payload('{"id": 6, "note": "n"}', before[:-1]) == frame(new) + NESTED + b"\x08\x06\x1a\x01n"
    with pytest.raises(RefusedError, match="fields that its schema does not have"):
        values.text(frame(old) + NESTED + b"\x08\x06\x1a\x01n")
    with pytest.raises(RefusedError, match="not in a schema registry's framing"):
        values.text(b"\x08\x06")


def test_json_keeps_its_schema_id_and_every_character_of_the_text(
    stack: Stack, registry: SchemaRegistryClient
) -> None:
    topic = unique("orders")
    number = registry.register_schema(f"{topic}-value", Schema(OBJECT, "JSON"))
    values = payloads_of(stack, topic, "json")
    before = frame(number) + b'{"id":  1.50}'
    assert values.text(before) == '{"id":  1.50}'
    assert values.payload('{"id":  2.50}', before) == frame(number) + b'{"id":  2.50}'
    assert values.payload('{"id": 3}', b"{") == frame(number) + b'{"id": 3}'
