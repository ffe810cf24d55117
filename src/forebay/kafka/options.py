"""Every option of a Kafka source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forebay.errors import MissingOptionError, OptionConflictError, OptionValueError
from forebay.kafka.flow_options import BACKPRESSURE, GROUP, HEALTH, WATERMARKS
from forebay.kafka.other_clients import written_here
from forebay.options import (
    ANY_TEXT,
    BOOLEAN,
    CHARACTER,
    CHARACTER_OR_NONE,
    REGEX,
    TEXT,
    WORDS,
    Option,
    OptionKind,
    OptionTable,
    PassThrough,
    choice,
    integer,
    size,
)

FORMATS = ("json", "avro", "protobuf", "debezium-json", "csv", "raw")


def _specific_offsets(text: str) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 12}}`, or `0:12,1:40` / `partition:0,offset:12;…` for a single topic (key '')."""
    if text.lstrip().startswith("{"):
        found = json.loads(text)
        return {
            str(topic): {str(int(p)): _offset(o) for p, o in partitions.items()}
            for topic, partitions in found.items()
        }
    plain = re.sub(r"partition:(\d+),offset:(\d+)", r"\1:\2", text)
    pairs = [part.split(":") for part in re.split(r"[,;]", plain)]
    found = {str(int(partition)): _offset(offset) for partition, offset in pairs}
    if len(found) < len(pairs):
        raise ValueError("a partition is named twice")
    return {"": found}


def _offset(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool | float) or number < 0:
        raise ValueError
    return number


def _parse_specific(text: str) -> dict[str, dict[str, int]]:
    try:
        return _specific_offsets(text)
    except (AttributeError, TypeError) as error:
        raise ValueError from error


SPECIFIC_OFFSETS = OptionKind(
    "offsets", _parse_specific, 'offsets such as {"orders": {"0": 42, "1": 7}} or 0:42,1:7'
)


IDS = OptionKind(
    "numbers",
    lambda text: tuple(int(part) for part in text.split(",")),
    "ids separated by commas, such as 17, 21",
)


def _evolution_complete(values: Mapping[str, Any]) -> None:
    policy = values["schema.evolution"]
    if policy == "ignore":
        return
    if not values["schema.registry.url"]:
        raise MissingOptionError(
            f"'schema.evolution' = '{policy}' needs a registry, where the records' schemas are",
            option="schema.registry.url",
            remedy="USING SCHEMA REGISTRY (url = '…')",
        )
    for given in ("avro.schema", "avro.schema.file"):
        if policy == "evolve" and values[given]:
            raise OptionConflictError(
                f"'{given}' says what records are read as, and 'schema.evolution' = 'evolve' would change it",
                option=given,
                remedy="leave it out: the schema is taken from the registry",
            )


def _high_above_low(values: Mapping[str, Any]) -> None:
    if values["backpressure.high.watermark"] <= values["backpressure.low.watermark"]:
        raise OptionValueError(
            "'backpressure.high.watermark' must be > 'backpressure.low.watermark'",
            option="backpressure.high.watermark",
            remedy="for example 0.8 and 0.5",
        )


def _delay_for_a_least(values: Mapping[str, Any]) -> None:
    if values["min.records.per.batch"] is not None and not values["max.delay.ms"]:
        raise MissingOptionError(
            "'min.records.per.batch' needs 'max.delay.ms': how long a batch may wait for so many records",
            option="min.records.per.batch",
            remedy="for example 'max.delay.ms' = '500'",
        )


def _startup_complete(values: Mapping[str, Any]) -> None:
    needs = {"timestamp": "startup.timestamp.ms", "specific-offsets": "startup.specific.offsets"}
    mode = values["startup.mode"]
    for wanted, key in needs.items():
        if mode == wanted and values[key] is None:
            raise MissingOptionError(f"'startup.mode' = '{mode}' needs '{key}'", option=key)
        if mode != wanted and values[key] is not None:
            raise OptionConflictError(
                f"'{key}' has no meaning with 'startup.mode' = '{mode}'",
                option=key,
                remedy=f"set 'startup.mode' = '{wanted}'",
            )


def _key_complete(values: Mapping[str, Any]) -> None:
    columns, name = values["key.columns"], values["key.format"]
    if columns and name is None:
        raise MissingOptionError(
            "'key.columns' needs 'key.format'",
            option="key.format",
            remedy="for example 'key.format' = 'json'",
        )
    if name is not None and not columns and not name == values["format"] == "raw":
        raise MissingOptionError(
            "'key.format' needs 'key.columns': which of the columns are the key's",
            option="key.columns",
            remedy="for example 'key.columns' = 'id'; INCLUDE KEY AS k gives the key's bytes as they are",
        )


_OWNED = {
    "bootstrap.servers": "write 'bootstrap.servers' without the prefix",
    "metadata.broker.list": "write 'bootstrap.servers'",
    "group.id": "write 'group.id' without the prefix",
    "auto.offset.reset": "write 'auto.offset.reset' without the prefix",
    "topic.auto.offset.reset": "write 'auto.offset.reset'",
    "isolation.level": "write 'isolation.level' without the prefix",
    "partition.assignment.strategy": "write 'partition.assignment.strategy' without the prefix",
    "enable.auto.commit": "offsets are committed after the checkpoint and only then",
    "enable.auto.offset.store": "offsets are committed after the checkpoint and only then",
    "enable.partition.eof": "the reader needs it for itself",
}
_DANGEROUS = {
    # Each of these runs code, or reads a file or an inner host, on behalf of whoever wrote the statement.
    "plugin.library.paths": "it loads native code into the process",
    "ssl.engine.location": "it loads native code into the process",
    "ssl.providers": "it loads native code into the process",
    "sasl.kerberos.kinit.cmd": "it runs a shell command",
    "sasl.jaas.config": "login modules can run code; use 'kafka.sasl.username' and 'kafka.sasl.password'",
    "sasl.login.callback.handler.class": "it loads a class by name",
    "sasl.client.callback.handler.class": "it loads a class by name",
    "sasl.oauthbearer.token.endpoint.url": "it makes the client call an address of the statement's choice",
    "sasl.oauthbearer.jwks.endpoint.url": "it makes the client call an address of the statement's choice",
    "sasl.oauthbearer.assertion.file": "it reads a file of the statement's choice",
    "sasl.oauthbearer.assertion.jwt.template.file": "it reads a file of the statement's choice",
    "sasl.oauthbearer.assertion.private.key.file": "it reads a file of the statement's choice",
    "sasl.oauthbearer.config": "it can name files and addresses",
    "interceptor.classes": "it loads a class by name",
    "metric.reporters": "it loads a class by name",
    "key.deserializer": "values are decoded by 'format'",
    "value.deserializer": "values are decoded by 'format'",
}
_ENDANGERING_VALUE = re.compile(r"(jndi|ldap|ldaps|rmi|file)\s*:|LoginModule", re.IGNORECASE)

_SECRET = re.compile(r"password|secret|token|\.pem$|private\.key\.passphrase|credentials", re.IGNORECASE)
# librdkafka puts these two into the command line of kinit, which a shell runs: no character may mean anything to it.
_IN_A_COMMAND = {
    "sasl.kerberos.principal": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]*"),
    "sasl.kerberos.keytab": re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@:+=,-]*"),
}


def _check_pass_through(key: str, value: str) -> str | None:
    allowed = _IN_A_COMMAND.get(key)
    if allowed is not None and not allowed.fullmatch(value):
        return "it is part of a shell command, and only letters, digits and _ . / @ - are taken there"
    # A secret is handed on as it is, and may hold any characters: nothing is looked up by it.
    if not _SECRET.search(key) and _ENDANGERING_VALUE.search(value):
        return "the value names a login module, a file or a directory service"
    return None


PASS_THROUGH = PassThrough(
    prefix="kafka.",
    denied=_OWNED | _DANGEROUS,
    secret=_SECRET,
    check=_check_pass_through,
)

INCLUDES = (
    ("key", "the key's bytes", "k"),
    ("partition", "the number of the partition", "p"),
    ("offset", "the record's offset", "o"),
    ("timestamp", "the record's timestamp", "sent_at"),
    ("headers", "the headers, a MAP<STRING, BINARY>,", "h"),
)
"""What INCLUDE … AS name can add to the columns: the word, what it is, a name for it."""

_FORMAT_OPTIONS = (
    Option(
        "avro.schema",
        ANY_TEXT,
        "with format = avro: the schema that the records were written with, as JSON; with a registry, "
        "the schema that they are resolved to",
        example='{"type": "record", "name": "t", "fields": [{"name": "id", "type": "long"}]}',
    ),
    Option(
        "avro.schema.file",
        TEXT,
        "a file that holds what avro.schema would, read where the session runs",
        example="schemas/order.avsc",
    ),
    Option(
        "protobuf.schema",
        ANY_TEXT,
        "with format = protobuf: the messages' schema, as a .proto file has it",
        example='syntax = "proto3"; message Order { int64 id = 1; }',
    ),
    Option(
        "protobuf.schema.file",
        TEXT,
        "a .proto file with it, on the machine where the statement runs; read whenever the source is opened",
        example="schemas/order.proto",
    ),
    Option(
        "protobuf.schema.folder",
        TEXT,
        "where its imports are looked up, beside the well-known types; the file's own folder unless given",
        example="schemas",
    ),
    Option(
        "protobuf.descriptor",
        TEXT,
        "the schema as a descriptor set in base64, made by protoc --include_imports --descriptor_set_out",
        example="CiQKC29yZGVyLnByb3RvIhUKBU9yZGVyEgwKAmlkGAEgASgD",
    ),
    Option("protobuf.descriptor.file", TEXT, "a file with a descriptor set", example="schemas/order.desc"),
    Option(
        "protobuf.message",
        TEXT,
        "the message that records are, by its name; needed where the schema has several",
        example="shop.Order",
    ),
    Option("csv.delimiter", CHARACTER, "what separates the fields", ",", ";"),
    Option("csv.quote", CHARACTER_OR_NONE, "what encloses a field; empty: nothing does", '"', "'"),
    Option("csv.escape", CHARACTER_OR_NONE, "what makes the next character literal", example="\\"),
    Option("csv.null", ANY_TEXT, "the text that means NULL", "", "NULL"),
    Option("csv.header", BOOLEAN, "skip records that are the line of the columns' names", "false", "true"),
    Option("csv.comment", CHARACTER, "skip records that begin with this character", example="#"),
)

KAFKA = OptionTable(
    title="a Kafka source",
    options=(
        Option(
            "bootstrap.servers",
            TEXT,
            "Kafka broker addresses, host:port, separated by commas",
            required=True,
            example="localhost:9092",
            env="KAFKA_BOOTSTRAP_SERVERS",
        ),
        Option("topic", TEXT, "the topic to read", example="orders"),
        Option("topics", WORDS, "the topics to read, separated by commas", example="orders, returns"),
        Option(
            "topic.pattern",
            REGEX,
            "a regular expression; topics whose whole name matches are read, new ones too",
            example="orders-.*",
        ),
        Option(
            "group.id",
            TEXT,
            "the consumer group that mirrors the checkpoint",
            required=True,
            example="forebay-orders",
        ),
        Option("format", choice(*FORMATS), "how a record's value is decoded", "json", "avro"),
        Option(
            "key.format",
            choice(*FORMATS),
            "how a record's key is decoded (keys are left out otherwise)",
            example="json",
        ),
        Option(
            "key.columns",
            WORDS,
            "with key.format: which of the declared columns are the key's, separated by commas",
            example="id",
        ),
        Option(
            "auto.offset.reset",
            choice("earliest", "latest", "none"),
            "where to start a partition for which the group has no offset; none: that is an error",
            "earliest",
            "latest",
        ),
        Option(
            "startup.mode",
            choice("group-offsets", "earliest", "latest", "timestamp", "specific-offsets"),
            "where a source without a checkpoint starts",
            "group-offsets",
            "earliest",
        ),
        Option(
            "startup.timestamp.ms",
            integer(0),
            "with startup.mode = timestamp: the first record at or after it",
            example="1768471200000",
        ),
        Option(
            "startup.specific.offsets",
            SPECIFIC_OFFSETS,
            "with startup.mode = specific-offsets: an offset a partition",
            example='{"orders": {"0": 42}}',
        ),
        Option(
            "isolation.level",
            choice("read_committed", "read_uncommitted"),
            "whether records of open and aborted transactions are left out",
            "read_committed",
        ),
        Option(
            "max.poll.records", integer(1, 1_000_000), "the most records in one Arrow batch", "1000", "5000"
        ),
        Option(
            "fetch.budget.bytes",
            size("1MB", "1024GB"),
            "the most memory that one task holds records in",
            "256MB",
            "64MB",
        ),
        Option(
            "poll.timeout.ms", integer(1, 600_000), "how long one look for new records waits", "100", "50"
        ),
        Option(
            "max.records.per.batch",
            integer(1),
            "the most records in one micro-batch, over all partitions",
            "4000000",
            "100000",
        ),
        Option(
            "include.metadata", BOOLEAN, "add the columns _partition, _offset, _timestamp", "false", "true"
        ),
        Option("include.headers", BOOLEAN, "add the column _headers MAP<STRING, BINARY>", "false", "true"),
        Option(
            "mask",
            WORDS,
            "columns, fields and headers whose values are not shown, by name, glob or path: in the dashboard, in commands, "
            "logs, messages and exports of dead letters they are •••, and nobody can search for them. Tables and letters "
            "themselves keep the values",
            example="email, card*, customer.phone",
        ),
        *(
            Option(f"include.{what}.as", TEXT, f"add {text} as a column of this name", example=example)
            for what, text, example in INCLUDES
        ),
        Option(
            "event.time.column",
            TEXT,
            "the column that carries event time, when no WATERMARK clause names one",
            example="ts",
        ),
        *WATERMARKS,
        *BACKPRESSURE,
        *GROUP,
        *HEALTH,
        Option(
            "fail.on.data.loss",
            BOOLEAN,
            "stop when the broker no longer has records that were not read yet",
            "true",
            "false",
        ),
        Option(
            "connect.timeout.ms",
            integer(1),
            "how long a start keeps trying to reach the brokers",
            "60000",
            "10000",
        ),
        Option("session.timeout.ms", integer(1), "the group's session timeout", "45000"),
        Option("heartbeat.interval.ms", integer(1), "the group's heartbeat interval", "3000"),
        Option("max.poll.interval.ms", integer(1), "the longest time between two polls", "300000"),
        Option("fetch.min.bytes", integer(1, 100_000_000), "the fewest bytes a fetch waits for", "1"),
        Option("fetch.max.bytes", integer(0, 2_147_483_135), "the most bytes in a fetch", "52428800"),
        Option("fetch.wait.max.ms", integer(0, 300_000), "how long a fetch waits for fetch.min.bytes", "10"),
        Option(
            "max.partition.fetch.bytes",
            integer(1, 1_000_000_000),
            "the most bytes of a partition in a fetch",
            "8388608",
        ),
        Option(
            "schema.registry.url",
            TEXT,
            "the schema registry's address: payloads of avro, protobuf and json then begin with a schema id",
            example="http://localhost:8081",
        ),
        Option("schema.registry.username", TEXT, "the registry's user", example="reader"),
        Option(
            "schema.registry.password",
            ANY_TEXT,
            "the registry's password",
            example="${REGISTRY_PASSWORD}",
            secret=True,
        ),
        Option(
            "schema.registry.bearer.token",
            ANY_TEXT,
            "the registry's token",
            example="${REGISTRY_TOKEN}",
            secret=True,
        ),
        Option(
            "schema.registry.ssl.ca.location",
            TEXT,
            "the CA that signed the registry's certificate",
            example="/etc/ssl/ca.pem",
        ),
        Option(
            "schema.registry.ssl.certificate.location",
            TEXT,
            "the client's certificate",
            example="/etc/ssl/me.pem",
        ),
        Option(
            "schema.registry.ssl.key.location",
            TEXT,
            "the client's key",
            example="/etc/ssl/me.key",
        ),
        Option(
            "schema.registry.ssl.key.password",
            ANY_TEXT,
            "the key's password",
            example="${KEY_PASSWORD}",
            secret=True,
        ),
        Option(
            "schema.registry.subject.name.strategy",
            choice("topic", "record", "topic-record"),
            "how the subject is named whose newest schema the records are resolved to",
            "topic",
            "record",
        ),
        Option(
            "schema.registry.record.name",
            TEXT,
            "the record's full name, for the record strategies",
            example="com.acme.Order",
        ),
        Option(
            "schema.evolution",
            choice("ignore", "reject", "evolve"),
            "with a registry, what becomes of records whose schema is not the one that the source was created "
            "with. ignore: what they have beyond the columns is left out. reject: the source stops. evolve: new "
            "fields become columns, and what does not fit the columns stops the source",
            "ignore",
            "evolve",
        ),
        Option(
            "schema.evolution.from",
            IDS,
            "the ids of the schemas that the columns are from, filled in when the source is created",
            example="17",
        ),
        *_FORMAT_OPTIONS,
        *(
            replace(option, name=f"key.{option.name}", description=f"the key's: {option.description}")
            for option in _FORMAT_OPTIONS
        ),
    ),
    exclusive=(
        ("topic", "topics", "topic.pattern"),
        ("schema.registry.password", "schema.registry.bearer.token"),
        *(
            tuple(prefix + name for name in names)
            for prefix in ("", "key.")
            for names in (
                ("avro.schema", "avro.schema.file"),
                (
                    "protobuf.schema",
                    "protobuf.schema.file",
                    "protobuf.descriptor",
                    "protobuf.descriptor.file",
                ),
            )
        ),
    ),
    one_of=(("topic", "topics", "topic.pattern"),),
    pass_through=PASS_THROUGH,
    rules=(_high_above_low, _delay_for_a_least, _startup_complete, _key_complete, _evolution_complete),
    elsewhere=written_here,
)


def shared(name: str, **changes: Any) -> Option:
    """An option that another table has, too, with the same name and values; `changes` are what differs there."""
    option = KAFKA.get(name)
    assert option is not None
    return replace(option, **changes)
