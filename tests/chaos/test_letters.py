"""SIGKILL of driver and Python workers while a tenth of the records is poison, in JSON, Avro and Protobuf.

Nothing is missing, and nothing is there twice.

FOREBAY_CHAOS_LETTERS sets how often the driver is killed (1), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pipelines import UNTIL_CAUGHT_UP, last, pipelines, table_of
from sessions import checkpoint_of
from support import Cluster, unique

from forebay.catalog import Catalog
from forebay.deadletter.letter import Letter

KILLS = int(os.environ.get("FOREBAY_CHAOS_LETTERS", "1"))
WORKERS = 3  # killed before each driver
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
RECORDS = 2_000 * KILLS + 2_000  # of each format


@dataclass(frozen=True)
class Form:
    """A format: how a good record is written, what is poison to it, how its source is declared."""

    good: Callable[[int], bytes]
    poison: tuple[bytes | None, ...]
    options: str = ""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
PROTOBUF = (
    'syntax = "proto3"; message Order { optional int64 id = 1; uint64 price = 2; repeated string tags = 3; }'
)
FORMS = {
    "json": Form(
        lambda number: json.dumps({"id": number}).encode(),
        (
            b'{"id": ', b"\xff\xfe\x00", b"", None, b"[1]", b'{"price": 1}', b'{"id": "7"}',
            b'{"id": 1, "price": 1.234}', b'{"id": 1, "tags": [1]}', b'{"id": 9223372036854775808}',
        ),
    ),
    "avro": Form(
        lambda number: b"\2" + varint(2 * number) + b"\2\1\0",
        (  # cut short, a byte too many, no branch, an endless array, no UTF-8, NULL, more digits than the column has
            b"\2\2", b"\2\2\2\1\0\0", b"\4\2\2\1\0", b"", None, b"\2\2\2\1" + varint(2**63),
            b"\2\2\2\1\2\2\xff\0", b"\0\2\1\0", b"\2\2\x0a\x7f\xff\xff\xff\xff\0",
        ),
        f", 'avro.schema' = '{AVRO}'",
    ),
    "protobuf": Form(
        lambda number: b"\x08" + varint(number),
        (  # cut short, no field, an absurd length, no UTF-8, without the id, more than BIGINT holds
            b"\x08", b"\x00", b"", None, b"\x08\x01\x1a\xff\xff\xff\xff\x07", b"\x08\x01\x1a\x01\xff",
            b"\x10\x01", b"\x08\x01\x10" + varint(2**64 - 1),
        ),
        f", 'protobuf.schema' = '{PROTOBUF}'",
    ),
}  # fmt: skip
SOURCE = """
CREATE SOURCE {form} (id BIGINT NOT NULL, price {price}, tags ARRAY<STRING>)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = '{topic}', max_records_per_batch = 800{options})
FORMAT {form} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 0);
CREATE MATERIALIZED VIEW {form}_v AS SELECT id FROM {form};
"""


def poison(form: str, number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers of a bad record, each its own."""
    values = FORMS[form].poison
    key = None if number % 3 == 0 else b"\x00%d" % number
    return key, values[number // 10 % len(values)], [("n", str(number).encode()), ("n", None)]


def produce(cluster: Cluster, topic: str, form: str) -> dict[tuple[str, int, int], Any]:
    """All records; every tenth is bad. Returns the bad ones by their place."""
    producer = cluster.producer()
    placed: dict[tuple[str, int, int], Any] = {}

    def bad_placed(number: int) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None
            placed[message.topic(), message.partition(), message.offset()] = poison(form, number)

        return on_delivery

    for number in range(RECORDS):
        if number % 10:
            producer.produce(topic, FORMS[form].good(number), partition=number % 3)
        else:
            key, value, headers = poison(form, number)
            producer.produce(
                topic, value, key, partition=number % 3, headers=headers, on_delivery=bad_placed(number)
            )
        producer.poll(0)
    assert producer.flush(60) == 0
    return placed


@pytest.mark.timeout(200 + 100 * KILLS)
def test_good_records_are_there_once_and_every_bad_one_has_its_letter_whoever_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    home, script = tmp_path / "home", tmp_path / "p.sql"
    dlqs = {form: unique(f"dlq-{form}") for form in FORMS}
    bad, written = {}, ""
    for form, dlq in dlqs.items():
        topic, price = cluster.make_topic(3), "BIGINT" if form == "protobuf" else "DECIMAL(9, 2)"
        bad[form] = produce(cluster, topic, form)
        written += SOURCE.format(
            form=form, brokers=cluster.bootstrap_servers, topic=topic, dlq=dlq, price=price,
            options=FORMS[form].options,
        )  # fmt: skip
    script.write_text(written)
    killed = 0
    with pipelines(script, home, tmp_path, view="json_v") as start:
        for kill in range(KILLS):
            pipeline = start()
            pipeline.await_running(first_batch=True)
            for _ in range(WORKERS):
                time.sleep(moments.uniform(0, 1.5))  # the moment is what is random here
                for worker in moments.sample(found := pipeline.workers(), min(1, len(found))):
                    worker.send_signal(signal.SIGKILL)
                    killed += 1
            time.sleep(moments.uniform(0, 1.0))  # and here
            assert pipeline.process.poll() is None, pipeline.log.read_text()
            pipeline.kill(whole_group=kill % 2 == 0)
        reached = last(checkpoint_of(home, "json_v"), "commits")
        start(*UNTIL_CAUGHT_UP).finish()
    print(f"{killed} workers and {KILLS} drivers killed, {reached + 1} batches done before the last run")
    assert killed, "no worker was killed: this has shown nothing"

    catalog = Catalog(home / "catalog.db")
    try:
        errors = {each.source_name: each for each in catalog.source_errors()}
        for form, dlq in dlqs.items():
            table = table_of(home, f"{form}_v").to_pyarrow_table()
            assert sorted(table["id"].to_pylist()) == [n for n in range(RECORDS) if n % 10], form
            found: dict[tuple[str, int, int], Letter] = {}
            for letter in cluster.letters(dlq):
                found.setdefault((letter.topic, letter.partition, letter.offset), letter)
            assert found.keys() == bad[form].keys(), form
            for place, letter in found.items():
                assert (letter.key, letter.value, list(letter.headers)) == bad[form][place], form
            counted = errors[form]
            expected = (len(bad[form]), len(bad[form]), 0)
            assert (counted.errors_total, counted.dlq_total, counted.rate_limited) == expected, form
            assert catalog.ledger(form) == []
    finally:
        catalog.close()
