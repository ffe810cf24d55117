"""`CREATE SOURCE artifacts FROM BLACKBOARD (…)`: the log of artifacts as a source like any other.

It is a Kafka source that knows its topic, its format and its columns. Only sessions load it, by its entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from forebay import column_types as types
from forebay.connectors.contract import ConnectorInfo, Discovered
from forebay.kafka.connector import KafkaSource
from forebay.kafka.options import KAFKA
from forebay.options import ANY_TEXT, Option, Options, OptionTable

# The payload is each type's own affair: who wants it declares the columns, with `payload STRUCT<…>` among them.
COLUMNS = pa.schema(
    [
        pa.field("id", types.STRING, nullable=False),
        pa.field("type", types.STRING, nullable=False),
        pa.field("produced_by", types.STRING, nullable=False),
        pa.field("correlation_id", types.STRING),
        pa.field("partition_key", types.STRING),
        pa.field("tags", types.array_of(types.STRING, nullable=False)),
        pa.field("visibility", pa.struct([pa.field("kind", types.STRING)])),
        pa.field("created_at", types.TIMESTAMP, nullable=False),
        pa.field("version", types.INT),
    ]
)


class _Table(OptionTable):
    """A Kafka source's options; the topic follows from the prefix unless it is given."""

    def bind(self, given: Mapping[str, str]) -> Options:
        named = {"topic", "topics", "topic.pattern"}.intersection(given)
        topic = {} if named else {"topic": given.get("topic.prefix", "flock.") + "artifacts"}
        return super().bind({**topic, **given})


BLACKBOARD_SOURCE = _Table(
    title="a blackboard source",
    options=(
        Option(
            "topic.prefix",
            ANY_TEXT,
            "what the names of the blackboard's topics begin with",
            "flock.",
            "team.",
        ),
        *(
            replace(option, description="the log of artifacts; <topic.prefix>artifacts unless given")
            if option.name == "topic"
            else option
            for option in KAFKA.options
        ),
    ),
    exclusive=KAFKA.exclusive,
    pass_through=KAFKA.pass_through,
    rules=KAFKA.rules,
)


class BlackboardSource(KafkaSource):
    """The artifacts of a blackboard, in the order of their keys."""

    table = BLACKBOARD_SOURCE

    @classmethod
    def info(cls) -> ConnectorInfo:
        return ConnectorInfo("blackboard", "Artifacts of a Kafka blackboard", cls.table.options, ("json",))

    def discover_schema(self) -> Discovered | None:
        return Discovered(COLUMNS, "the fields of an artifact; declare the columns to read payloads, too")
