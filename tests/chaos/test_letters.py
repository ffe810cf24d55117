"""SIGKILL of driver and Python workers while a tenth of the records is poison: nothing missing, nothing twice.

FOREBAY_CHAOS_LETTERS sets how often the driver is killed (1), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.peers.sampling import DAEMONS
from confluent_kafka import Producer, TopicPartition
from deltalake import DeltaTable
from support import QUIET, Cluster, unique
from test_sigkill import Pipeline, last

from forebay.catalog import Catalog
from forebay.deadletter.letter import Letter

KILLS = int(os.environ.get("FOREBAY_CHAOS_LETTERS", "1"))
WORKERS = 3  # killed before each driver
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
RECORDS = 6_000 * KILLS + 6_000
PIPELINE = """
CREATE SOURCE poison (id BIGINT NOT NULL, price DECIMAL(9, 2), tags ARRAY<STRING>)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = '{topic}', max_records_per_batch = 1000) FORMAT JSON
ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 0);
CREATE MATERIALIZED VIEW plain AS SELECT id FROM poison;
"""
POISON: tuple[bytes | None, ...] = (
    b'{"id": ', b"\xff\xfe\x00", b"", None, b"[1]", b'{"price": 1}', b'{"id": "7"}', b'{"id": 1, "price": 1.234}',
    b'{"id": 1, "tags": [1]}', b'{"id": 9223372036854775808}',
)  # fmt: skip


def poison(number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers of a bad record, each its own."""
    value = POISON[number // 10 % len(POISON)]
    key = None if number % 3 == 0 else b"\x00%d" % number
    return key, value, [("n", str(number).encode()), ("n", None)]


def produce(cluster: Cluster, topic: str) -> dict[tuple[str, int, int], Any]:
    """All records; every tenth is bad. Returns the bad ones by their place."""
    producer = Producer({**cluster.client, "acks": "all", "linger.ms": 5}, logger=QUIET)
    placed: dict[tuple[str, int, int], Any] = {}

    def bad_placed(number: int) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None
            placed[message.topic(), message.partition(), message.offset()] = poison(number)

        return on_delivery

    for number in range(RECORDS):
        if number % 10:
            producer.produce(topic, json.dumps({"id": number}), partition=number % 3)
        else:
            key, value, headers = poison(number)
            producer.produce(
                topic, value, key, partition=number % 3, headers=headers, on_delivery=bad_placed(number)
            )
        producer.poll(0)
    assert producer.flush(60) == 0
    return placed


def workers_of(pipeline: Pipeline) -> list[psutil.Process]:
    """The Python processes that Spark started: those that read, and the one that plans."""
    found = []
    for process in psutil.Process(pipeline.process.pid).children(recursive=True):
        try:
            parent = process.parent()
            forked = parent is not None and not DAEMONS.isdisjoint(parent.cmdline())
            if forked and not DAEMONS.isdisjoint(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def letters(cluster: Cluster, topic: str) -> list[Letter]:
    consumer = cluster.consumer(unique("letters"))
    found = []
    try:
        for number, (low, high) in cluster.watermarks(topic).items():
            consumer.assign([TopicPartition(topic, number, low)])
            at = low
            while at < high:
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                found.append(Letter.from_kafka(message.key(), message.value(), message.headers()))
                at = message.offset() + 1
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(200 + 100 * KILLS)
def test_good_records_are_there_once_and_every_bad_one_has_its_letter_whoever_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    home, script, topic, dlq = tmp_path / "home", tmp_path / "p.sql", cluster.make_topic(3), unique("dlq")
    script.write_text(PIPELINE.format(brokers=cluster.bootstrap_servers, topic=topic, dlq=dlq))
    bad = produce(cluster, topic)
    runs: list[Pipeline] = []
    killed = 0
    try:
        for kill in range(KILLS):
            runs.append(Pipeline(script, home, tmp_path / f"run-{kill}.log"))
            runs[-1].await_running(first_batch=True)
            for _ in range(WORKERS):
                time.sleep(moments.uniform(0, 1.5))  # the moment is what is random here
                for worker in moments.sample(found := workers_of(runs[-1]), min(1, len(found))):
                    worker.send_signal(signal.SIGKILL)
                    killed += 1
            time.sleep(moments.uniform(0, 1.0))
            assert runs[-1].process.poll() is None, runs[-1].log.read_text()
            runs[-1].kill(whole_group=kill % 2 == 0)
        reached = last(home / "views" / "plain" / "checkpoint", "commits")
        runs.append(Pipeline(script, home, tmp_path / "final.log", "--until-caught-up", "--timeout", "150"))
        assert runs[-1].process.wait(200) == 0, runs[-1].log.read_text()
    finally:
        for run in runs:
            if run.process.poll() is None:
                run.kill(whole_group=True)
    print(f"{killed} workers and {KILLS} drivers killed, {reached + 1} batches done before the last run")
    assert killed, "no worker was killed: this has shown nothing"

    rows = DeltaTable(str(home / "views" / "plain" / "table")).to_pyarrow_table()["id"].to_pylist()
    assert sorted(rows) == [number for number in range(RECORDS) if number % 10]
    found: dict[tuple[str, int, int], Letter] = {}
    for letter in letters(cluster, dlq):
        found.setdefault(letter.identity, letter)
    assert found.keys() == bad.keys()
    for place, letter in found.items():
        assert (letter.key, letter.value, list(letter.headers)) == bad[place]
    catalog = Catalog(home / "catalog.db")
    try:
        [errors] = catalog.source_errors()
        assert (errors.errors_total, errors.dlq_total, errors.rate_limited) == (len(bad), len(bad), 0)
        assert catalog.ledger("poison") == []
    finally:
        catalog.close()
