"""SIGKILL while new fields become columns: every record is there once, with all of its fields.

FOREBAY_CHAOS_EVOLUTIONS sets how often (1), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pipelines import UNTIL_CAUGHT_UP, pipelines, table_of
from support import Cluster, Stack

KILLS = int(os.environ.get("FOREBAY_CHAOS_EVOLUTIONS", "1"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
RECORDS = 300  # with each schema
LATEST_S = 4.0  # an evolution takes about so long, from the first record to the query that goes on
SCRIPT = """
CREATE SOURCE orders FROM KAFKA (brokers = '{brokers}', topic = '{topic}', startup_mode = 'earliest',
    schema_evolution = 'evolve', max_records_per_batch = 100) FORMAT AVRO USING SCHEMA REGISTRY (url = '{url}');
CREATE MATERIALIZED VIEW plain AS SELECT * FROM orders;
"""


class Writer:
    """Each schema has a field more than the one before, and every record a value in each of its fields."""

    def __init__(self, kafka: Cluster, registry: SchemaRegistryClient, topic: str) -> None:
        self.rows: list[dict[str, Any]] = []
        self.fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
        self._kafka = kafka
        self._topic = topic
        self._registry = registry

    def evolve(self) -> None:
        name = f"f{len(self.fields)}"
        self.fields.append({"name": name, "type": ["null", "string"], "default": None})
        schema = {"type": "record", "name": "Order", "fields": self.fields}
        serializer = AvroSerializer(self._registry, json.dumps(schema))
        context = SerializationContext(self._topic, MessageField.VALUE)
        first, names = len(self.rows), [field["name"] for field in self.fields[1:]]
        rows = [{"id": n, **{each: f"{each}-{n}" for each in names}} for n in range(first, first + RECORDS)]
        self._kafka.produce(self._topic, [serializer(row, context) for row in rows])
        self.rows += rows


@pytest.mark.timeout(240 + 90 * KILLS)
def test_new_fields_become_columns_for_every_record_however_often_the_driver_is_killed(
    stack: Stack, registry: SchemaRegistryClient, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    moments, kafka = random.Random(SEED), Cluster(stack)
    home, script, topic = tmp_path / "home", tmp_path / "p.sql", kafka.make_topic(2)
    url = str(stack.schema_registry_url)
    script.write_text(SCRIPT.format(brokers=stack.bootstrap_servers, topic=topic, url=url))
    writer = Writer(kafka, registry, topic)
    writer.evolve()
    with pipelines(script, home, tmp_path) as start:
        for kill in range(KILLS):
            pipeline = start()
            pipeline.await_running(first_batch=True)
            writer.evolve()
            time.sleep(moments.uniform(0, LATEST_S))  # the moment is what is random here
            assert pipeline.process.poll() is None, pipeline.log.read_text()
            pipeline.kill(whole_group=kill % 2 == 0)
        start(*UNTIL_CAUGHT_UP).finish()
    names = [field["name"] for field in writer.fields]
    table = table_of(home, "plain").to_pyarrow_table()
    assert table.schema.names == names
    found = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert found == [{name: row.get(name) for name in names} for row in writer.rows]
