"""A client that has failed for good says so, whatever else it had to tell in the same moment."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from support import Cluster, unique

from forebay.kafka.callbacks import called_back
from forebay.kafka.settings import CLIENT_LOG


def fenced(cluster: Cluster, topic: str, **settings: Any) -> Producer:
    """A producer whose transaction another one has ended, as it will hear with its next record."""
    given = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("tx")}
    producer = Producer(given | settings, logger=CLIENT_LOG)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"before")
    assert producer.flush(20) == 0
    Producer(given, logger=CLIENT_LOG).init_transactions(20)
    return producer


def test_a_log_line_behind_a_fatal_error_does_not_hide_it(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    producer = fenced(cluster, topic, debug="eos,msg,broker,topic")
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keep = Keep()
    kafka_log = logging.getLogger("forebay.kafka.client")
    kafka_log.addHandler(keep)
    kafka_log.setLevel(logging.DEBUG)
    try:
        producer.produce(topic, b"after")
        with pytest.raises(KafkaException) as caught:
            producer.flush(20)
    finally:
        kafka_log.removeHandler(keep)
        kafka_log.setLevel(logging.NOTSET)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert any("fenced" in line for line in lines)


def test_callbacks_behind_a_fatal_error_are_all_carried_out_and_it_is_raised(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    producer = fenced(cluster, topic)
    told: list[int] = []

    @called_back
    def delivered(error: KafkaError | None, _: Any) -> None:
        told.append(len([error]))

    for _ in range(5):
        producer.produce(topic, b"after", on_delivery=delivered)
    with pytest.raises(KafkaException) as caught:
        producer.flush(20)
    assert caught.value.args[0].code() == KafkaError._FENCED
    producer.purge()
    while len(told) < 5:
        producer.flush(20)
    assert told == [1] * 5
