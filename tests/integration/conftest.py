"""Hands to fill the worker's broker with, and a broker that may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import NUMBERS, Cluster, eventually
from support import kafka_source as make_source

from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 4, *, name: str = "", **config: str) -> str: ...


class KafkaOptions(Protocol):
    def __call__(self, topic: str, **more: str) -> dict[str, str]: ...


class MakeSource(Protocol):
    def __call__(self, options: dict[str, str], schema: pa.Schema = NUMBERS) -> KafkaSource: ...


@pytest.fixture(scope="session")
def cluster(broker: DevStack) -> Cluster:
    return Cluster(broker)


@pytest.fixture(scope="session")
def _mortal() -> Iterator[DevStack]:
    with DevStack() as stack:
        yield stack


@pytest.fixture
def mortal_broker(_mortal: DevStack) -> DevStack:
    """A running broker that a test may kill or freeze, one a worker process; whoever comes next finds it well."""
    _mortal.start_broker()
    admin = Cluster(_mortal).admin
    eventually(lambda: admin.list_topics(timeout=10).brokers, "it has its place in the cluster")
    return _mortal


@pytest.fixture(scope="session")
def make_topic(cluster: Cluster) -> MakeTopic:
    return cluster.make_topic


@pytest.fixture(scope="session")
def produce(cluster: Cluster):  # type: ignore[no-untyped-def]
    """See `Cluster.produce`."""
    return cluster.produce


@pytest.fixture(scope="session")
def kafka_options(cluster: Cluster) -> KafkaOptions:
    return cluster.kafka_options


@pytest.fixture
def kafka_source() -> Iterator[MakeSource]:
    """Makes Kafka sources that are closed when the test ends."""
    made: list[KafkaSource] = []

    def make(options: dict[str, str], schema: pa.Schema = NUMBERS) -> KafkaSource:
        made.append(make_source(options, schema))
        return made[-1]

    yield make
    for source in made:
        source.close()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A tracer provider for one test: OpenTelemetry's own global one can be set only once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    return exporter
