"""An Apache Kafka broker in one JVM, its own controller, on 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from forebay.devstack import kraft
from forebay.devstack.artifacts import KAFKA
from forebay.devstack.guard import Guard
from forebay.devstack.ports import HOST, answers, free_ports
from forebay.devstack.service import Service
from forebay.jvm.java import Java


class Broker(Service):
    """One broker. `properties` are Kafka's server properties and win over the stack's own.

    With a `guard` it asks who is there. After a start, `listeners` tells the addresses of those that the guard has
    beside CLIENT.
    """

    name = "broker"
    artifacts = KAFKA
    address_in_use = "Address already in use"

    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        guard: Guard | None = None,
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        self._properties = dict(properties or {})
        self.guard = guard
        self.listeners = dict.fromkeys(
            (name for name in guard.listeners if name != "CLIENT") if guard else (), ""
        )

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
        if self.guard is not None:
            self.guard.prepare()
            properties |= self.guard.properties()
            self.guard.write_client_files(f"{HOST}:{port}")
        kraft.write_properties(config, {**properties, **self._properties})
        logging = Path(__file__).with_name("log4j2.properties")
        arguments = ["-Xms256m", "-Xmx768m", "-Djava.awt.headless=true"]
        arguments += os.environ.get("KAFKA_OPTS", "").split()  # as Kafka's own scripts take it
        arguments += [f"-Dlog4j2.configurationFile={logging}", "-cp", kraft.classpath(home)]
        arguments += ["kafka.Kafka", str(config)]
        return arguments, _Ready(port, internal, self.guard)


class _Ready:
    """Whether metadata is answered and names a broker, and a guard lets in who may come in.

    The client is made only once the port answers: before that it would print refused connections.
    """

    def __init__(self, client: int, internal: int, guard: Guard | None) -> None:
        self._client, self._internal, self._guard = client, internal, guard
        self._admin: AdminClient | None = None
        self._enrolled = False

    def __call__(self) -> bool:
        if self._admin is None:
            if not (answers(self._client) and answers(self._internal)):
                return False
            # Silent: a broker that dies now is reported with its own log, not with the client's.
            silent: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{self._internal}", "log_level": 0}
            self._admin = AdminClient(silent | (self._guard.internal() if self._guard else {}))
        try:
            if not self._admin.list_topics(timeout=2).brokers:
                return False
            if self._guard is None:
                return True
            if not self._enrolled:
                self._guard.enrol(self._admin)
                self._enrolled = True
        except KafkaException:
            return False
        return self._guard.lets_in(f"{HOST}:{self._client}")
