"""Options of other systems' Kafka sources lead to ours."""

from __future__ import annotations

import pytest

from forebay.errors import UnknownOptionError
from forebay.kafka.options import KAFKA

GIVEN = {"bootstrap.servers": "b:1", "topic": "t", "group.id": "g"}


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("properties.bootstrap.servers", "write 'bootstrap.servers'"),
        ("properties.bootstrap.server", "write 'bootstrap.servers'"),
        ("properties.group.id", "write 'group.id'"),
        ("properties.security.protocol", "write 'kafka.security.protocol'"),
        ("properties.sasl.mechanism", "write 'kafka.sasl.mechanism'"),
        ("key.fields", "write 'key.columns'"),
        ("key.fields-prefix", "leave it out"),
        ("value.fields-include", "'key.columns'"),
        ("value.format", "write 'format'"),
        ("value.csv.delimiter", "write 'csv.delimiter'"),
        ("kafka.topic", "write 'topic'"),
        ("scan.startup.mode", "write 'startup.mode'"),
        ("scan.startup.timestamp-millis", "write 'startup.timestamp.ms'"),
        ("json.ignore-parse-errors", "write ON ERROR = 'skip'"),
        ("value.json.ignore-parse-errors", "write ON ERROR = 'skip'"),
        ("csv.ignore-parse-errors", "write ON ERROR = 'skip'"),
        ("json.fail-on-missing-field", "NOT NULL"),
        ("json.timestamp-format.standard", "ISO 8601"),
        ("avro-confluent.url", "write 'schema.registry.url'"),
        ("timestamp", "WATERMARK FOR"),
    ],
)
def test_an_option_of_another_system_is_refused_with_ours(key: str, remedy: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        KAFKA.bind({**GIVEN, key: "x"})
    assert caught.value.option == key
    assert remedy in caught.value.remedy


def test_what_is_written_here_is_known_here() -> None:
    """No remedy names an option that there is not."""
    from forebay.kafka.other_clients import _RENAMED

    assert [name for name in _RENAMED.values() if name not in KAFKA] == []
