"""Hands to fill the worker's broker with, and a broker that may be killed."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa
import pytest
import sessions
from guarded import Guarded, guarded_cluster
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import NUMBERS, Cluster, Stack
from support import kafka_source as make_source
from waiting import eventually

from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource
from forebay.native import native
from forebay.runtime.session import Session


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
def kafka(stack: Stack) -> Cluster:
    """The same broker, with a registry beside it."""
    return Cluster(stack)


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


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that refuses connections, and that nobody else can take meanwhile: it is bound, and not listened at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


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


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session, the same for all tests of a file."""
    with sessions.connect(tmp_path_factory.mktemp("session") / "home") as session:
        yield session


@pytest.fixture
def feed(db: Session, cluster: Cluster) -> Iterator[tuple[str, sessions.Send]]:
    """A source on a topic of its own, and a way to send it records; gone after the test."""
    topic, source = cluster.make_topic(1), sessions.name("src")
    db.execute(sessions.create_source(cluster, source, topic))

    def send(*records: str) -> None:
        cluster.produce(topic, records)
        sessions.caught_up(db)

    yield source, send
    db.execute(f"DROP SOURCE {source} CASCADE")


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that asks who is there."""
    with guarded_cluster(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Switches the native reader off when called, and on again afterwards."""

    def switch() -> None:
        monkeypatch.setenv("FOREBAY_NATIVE", "0")
        native.cache_clear()

    yield switch
    monkeypatch.undo()
    native.cache_clear()


@pytest.fixture(params=["native", "plain"])
def either_decoder(request: pytest.FixtureRequest, plainly: Callable[[], None]) -> None:
    """The test runs with the native reader, and without it."""
    if request.param == "plain":
        plainly()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A tracer provider for one test: OpenTelemetry's own global one can be set only once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    return exporter


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """All that was logged or printed, by the client library too, which keeps to a log of its own."""
    caplog.set_level(logging.DEBUG)
    client_log = logging.getLogger("forebay.kafka.client")
    client_log.addHandler(caplog.handler)
    yield lambda: caplog.text + "".join(capfd.readouterr())
    client_log.removeHandler(caplog.handler)
