"""Options of Kafka sources as Flink, RisingWave and ksqlDB call them, and what they are called here."""

from __future__ import annotations

from collections.abc import Container

_SKIP = "write ON ERROR = 'skip' behind the options: what does not decode is left out and counted"
_RENAMED = {
    "key.fields": "key.columns",
    "value.format": "format",
    "kafka.topic": "topic",
    "topic-pattern": "topic.pattern",
    "scan.startup.mode": "startup.mode",
    "scan.startup.timestamp-millis": "startup.timestamp.ms",
    "scan.startup.timestamp.millis": "startup.timestamp.ms",
    "scan.startup.specific-offsets": "startup.specific.offsets",
    "properties.bootstrap.server": "bootstrap.servers",
    "schema.registry": "schema.registry.url",
    "avro-confluent.url": "schema.registry.url",
    "avro-confluent.schema-registry.url": "schema.registry.url",
}
_SAID_OTHERWISE = {
    "key.fields-prefix": "leave it out: columns from the key have the names of its fields",
    "value.fields-include": "leave it out: 'key.columns' names the columns that come from the key",
    "partitions": "leave it out: a source reads a topic that is there",
    "replicas": "leave it out: a source reads a topic that is there",
    "timestamp": "write WATERMARK FOR ts AS ts - INTERVAL '5' SECOND among the columns",
}
_BY_END = {
    "ignore-parse-errors": _SKIP,
    "fail-on-missing-field": "declare the columns NOT NULL: a record without the field is refused",
    "timestamp-format.standard": "leave it out: a TIMESTAMP is read from ISO 8601 text or epoch milliseconds",
}


def written_here(key: str, known: Container[str]) -> str:
    """What to write instead of this key; "" if it is no other system's."""
    plain = key.removeprefix("value.")  # Flink may say of each format option whose it is
    renamed = _RENAMED.get(key) or _RENAMED.get(plain)
    if renamed is None and key.startswith("properties."):
        bare = key.removeprefix("properties.")
        renamed = bare if bare in known else f"kafka.{bare}"
    if renamed is None and plain != key and plain in known:
        renamed = plain
    if renamed is not None:
        return f"write '{renamed}'"
    end = next((said for end, said in _BY_END.items() if plain.endswith(f".{end}")), "")
    return _SAID_OTHERWISE.get(key, end)
