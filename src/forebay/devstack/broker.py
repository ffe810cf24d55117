"""An Apache Kafka broker in one JVM, its own controller, on 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from forebay.devstack import kraft
from forebay.devstack.artifacts import KAFKA
from forebay.devstack.ports import HOST, answers, free_ports
from forebay.devstack.service import Service
from forebay.jvm.java import Java


class Broker(Service):
    """One broker. `properties` are Kafka's server properties and win over the stack's own.

    `listeners` names further ones beside CLIENT; after a start, `listeners` tells their addresses.
    """

    name = "broker"
    artifacts = KAFKA
    address_in_use = "Address already in use"

    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Iterable[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        self._properties = dict(properties or {})
        self.listeners = dict.fromkeys(listeners, "")

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect; known after the first start, also while the broker is down."""
        return f"{HOST}:{self.known_port}"

    def _prepare(self, port: int, home: Path, java: Java) -> tuple[list[str], Callable[[], bool]]:
        internal, controller, *ports = free_ports(2 + len(self.listeners), {port})
        more = dict(zip(self.listeners, ports, strict=True))
        self.listeners = {name: f"{HOST}:{number}" for name, number in more.items()}
        data, config = self.directory / "data", self.directory / "server.properties"
        kraft.format_storage(data, home, java)
        properties = kraft.server_properties(data, port, internal, controller, more)
        kraft.write_properties(config, {**properties, **self._properties})
        logging = Path(__file__).with_name("log4j2.properties")
        arguments = ["-Xms256m", "-Xmx768m", "-Djava.awt.headless=true"]
        arguments += os.environ.get("KAFKA_OPTS", "").split()  # as Kafka's own scripts take it
        arguments += [f"-Dlog4j2.configurationFile={logging}", "-cp", kraft.classpath(home)]
        arguments += ["kafka.Kafka", str(config)]
        return arguments, _Ready(port, internal)


class _Ready:
    """Whether metadata is answered and names a broker.

    The client is made only once the port answers: before that it would print refused connections.
    """

    def __init__(self, client: int, internal: int) -> None:
        self._client, self._internal = client, internal
        self._admin: AdminClient | None = None

    def __call__(self) -> bool:
        if self._admin is None:
            if not (answers(self._client) and answers(self._internal)):
                return False
            # Silent: a broker that dies now is reported with its own log, not with the client's.
            self._admin = AdminClient({"bootstrap.servers": f"{HOST}:{self._internal}", "log_level": 0})
        try:
            return bool(self._admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False
