"""The embedded stack as a context manager: a broker, and a schema registry if asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forebay.devstack.artifacts import load_set
from forebay.devstack.broker import Broker
from forebay.devstack.download import resolve
from forebay.devstack.grants import Grants
from forebay.devstack.guard import ADMIN, USER, Guard, Security
from forebay.devstack.registry_service import RegistryServer
from forebay.devstack.service import Service
from forebay.errors import OptionValueError, StackNotRunningError

if TYPE_CHECKING:
    from forebay.options import Options


class DevStack:
    """A real Kafka broker (and registry) on free ports of 127.0.0.1, gone when the block ends.

        with forebay.DevStack(registry=True) as stack:
            stack.create_topic("clicks", partitions=4)
            stack.produce("clicks", [{"url": "/"}])
            print(stack.bootstrap_servers, stack.schema_registry_url)

    registry: start a schema registry, too, which takes some seconds longer
    broker_port, registry_port: ports to use; free ones unless given
    data_dir: where data is kept for the next time; a temporary folder unless given
    security: who the broker lets in; everybody unless given. `"sasl-ssl"` asks for TLS and a password, `"mtls"` for TLS
        and a certificate, `"acl"` is `"sasl-ssl"` with a user who may do nothing that is not allowed by `allow()`.
        Certificates and passwords are made on the spot; `client_settings()` has them
    broker_properties: Kafka server properties

    Making it starts nothing. `start()` and `with` block until the servers answer. The first time they download them.
    `JavaMissingError` without Java 17, `DownloadError` where that fails, `StackStartError` where a server does not come
    up. The servers end with this Python process, even if it is killed.
    """

    def __init__(
        self,
        registry: bool = False,
        *,
        broker_port: int | None = None,
        registry_port: int | None = None,
        data_dir: str | Path | None = None,
        security: str | None = None,
        broker_properties: Mapping[str, str] | None = None,
    ) -> None:
        self._with_registry = registry
        self._broker_port = broker_port
        self._registry_port = registry_port
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._security = None if security is None else security_named(security)
        self._broker_properties = dict(broker_properties or {})
        self._temporary: Path | None = None
        self._broker: Broker | None = None
        self._registry: RegistryServer | None = None

    def __repr__(self) -> str:
        if self._broker is None:
            return "<forebay.DevStack, not started>"
        registry = f", registry at {self._registry.url}" if self._registry else ""
        return f"<forebay.DevStack: broker at {self.bootstrap_servers}{registry}>"

    @property
    def broker(self) -> Broker:
        """The broker, for tests of outages: `broker.kill()`, `broker.start()`."""
        if self._broker is None:
            raise StackNotRunningError("this DevStack is not started", remedy="use it in a with block")
        return self._broker

    @property
    def registry(self) -> RegistryServer | None:
        """The registry, None if none was asked for."""
        return self._registry

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, `127.0.0.1:port`. StackNotRunningError if it is not started."""
        return self.broker.bootstrap_servers

    @property
    def schema_registry_url(self) -> str | None:
        """The Confluent-compatible API, None if no registry was asked for."""
        self.broker  # noqa: B018 - the same error as for the broker, if nothing is started
        return self._registry.url if self._registry else None

    def client_settings(self, *, admin: bool = False) -> dict[str, str]:
        """The settings of a client library that is let in: protocol, certificates, user and password. Keep them secret.

        As `kafka.*` options of a source, a pool or a blackboard: `{f"kafka.{key}": value for key, value in …}`. They are
        those of the user `forebay`; with `admin`, of one who may do everything. Empty where everybody is let in.
        """
        guard = self.broker.guard
        return {} if guard is None else guard.client(ADMIN if admin else USER)

    def allow(self, line: str) -> None:
        """Do what a `kafka-acls` command line says, as the admin: `--add --allow-principal User:forebay …`.

        For a stack with `security="acl"`. OptionValueError for a line that is no such command.
        """
        Grants(self.bootstrap_servers, self.client_settings(admin=True)).run(line)

    def start(self) -> DevStack:
        """Start everything and return when it is ready; if one part fails, none stays. Starting twice is harmless.

        Blocks for some seconds, and for the download the first time.
        """
        if self._broker is not None:
            return self
        root = self._data_dir
        if root is None:
            root = self._temporary = Path(tempfile.mkdtemp(prefix="forebay-"))
        places = [root / "broker", root / "registry"]
        scratch: list[Path | None] = [None, None] if self._data_dir else [*places]
        broker = self._broker = Broker(
            places[0],
            port=self._broker_port,
            properties=self._broker_properties,
            guard=None if self._security is None else Guard.of(self._security, places[0] / "security"),
            scratch=scratch[0],
        )
        services: list[Service] = [broker]
        if self._with_registry:
            self._registry = RegistryServer(places[1], port=self._registry_port, scratch=scratch[1])
            services.append(self._registry)
        try:
            start_all(services)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything and remove temporary data; blocks until the servers have ended. Stopping twice is harmless."""
        services = [service for service in (self._broker, self._registry) if service is not None]
        try:
            each(services, "stop")
        finally:
            self._broker = self._registry = None
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def create_topic(self, name: str, partitions: int = 1, **config: str | int) -> None:
        """Make a topic, and return when it can be written to; `retention_ms=-1` sets `retention.ms`.

        ObjectExistsError if there is one of that name.
        """
        from forebay.kafka.topics import ClusterTopics

        topics = ClusterTopics(self._options(name))
        try:
            settings = {key.replace("_", "."): str(value) for key, value in config.items()}
            topics.create(name, partitions, config=settings)
        finally:
            topics.close()

    def produce(self, topic: str, records: Iterable[Any]) -> int:
        """Write records, and return how many when all have arrived.

        A record is its value, or a pair of key and value: bytes, text, None, or anything that is JSON.
        UnknownTopicError if there is no such topic.
        """
        from forebay.kafka.admin import Cluster
        from forebay.kafka.envelope import Envelope, payload
        from forebay.kafka.sender import Sender

        options = self._options(topic)
        cluster = Cluster(options)
        try:
            cluster.describe([topic])
        finally:
            cluster.close()
        with Sender(topic, options) as sender:
            for record in records:
                key, value = record if isinstance(record, tuple) else (None, record)
                sender.send(Envelope(payload(value), payload(key)))
        return sender.arrived

    def _options(self, topic: str) -> Options:
        from forebay.kafka.options import KAFKA

        given = {"bootstrap.servers": self.bootstrap_servers, "topic": topic, "group.id": "forebay-dev"}
        settings = self.client_settings(admin=True)
        return KAFKA.bind(given | {f"kafka.{key}": value for key, value in settings.items()})

    def kill_broker(self) -> None:
        """End the broker as a crash would."""
        self.broker.kill()

    def start_broker(self) -> None:
        """Bring it back on the same port, with the same data; blocks until it answers. StackStartError if it does not."""
        self.broker.start()

    def restart_broker(self) -> None:
        """Stop it in order and start it again; blocks until it answers."""
        self.broker.stop()
        self.broker.start()

    def __enter__(self) -> DevStack:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def security_named(word: str) -> Security:
    """One of the words of `security`."""
    try:
        return Security(word)
    except ValueError:
        raise OptionValueError(
            f"'security' cannot be {word!r}: expected one of {', '.join(Security)}", option="security"
        ) from None


def start_all(services: Sequence[Service]) -> None:
    """Download what is missing, one after the other, then start all at once."""
    for service in services:
        resolve(load_set(service.artifacts))
    each(services, "start")


def each(services: Sequence[Service], verb: str) -> None:
    """Call a method of every service at once; all are called even if one raises, the first error wins."""
    if not services:
        return
    with ThreadPoolExecutor(len(services), thread_name_prefix="forebay-stack") as pool:
        calls = [pool.submit(getattr(service, verb)) for service in services]
    for call in calls:
        call.result()
