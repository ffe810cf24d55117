"""A broker that asks who is there: passwords in the clear and under TLS, TLS alone, and certificates of clients.

It has ACLs: Ann may do everything, as may who comes without a name. `reader` may do nothing that a test does not allow.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import Cluster, numbers, unique

from forebay.devstack.broker import Broker
from forebay.devstack.certificates import Authority
from forebay.devstack.grants import Grants
from forebay.devstack.guard import Guard, GuardedListener, set_password
from forebay.kafka.offsets import KafkaSplit, Range

USER, PASSWORD = "ann", "correct-horse"
LATE = ("late-native", "late-python")  # who may do everything, once they have a password
RECORDS = 500
KINDS = {
    "plain": ("CLIENT", "PLAIN"),
    "plain-tls": ("SCRAM", "PLAIN"),
    "scram": ("SCRAM", "SCRAM-SHA-256"),
    "scram-512": ("SCRAM", "SCRAM-SHA-512"),
    "tls": ("TLS", None),
    "own": ("OWN", None),
    "mtls": ("MTLS", None),
}
"""The listener and the mechanism of each kind of connection."""


class Guarded:
    """The broker's topic, and the settings of a client for each kind of connection."""

    def __init__(self, broker: Broker, other_ca: Path) -> None:
        assert broker.guard is not None
        self.broker, self.guard, self.other_ca = broker, broker.guard, other_ca
        self.cluster = Cluster(broker, **self.guard.client(USER))
        self.topic = self.cluster.make_topic(2)
        self.cluster.produce(self.topic, numbers(RECORDS))
        self.split = KafkaSplit(tuple(Range(self.topic, number, 0, RECORDS // 2) for number in range(2)))
        self._grants = Grants(broker.bootstrap_servers, self.guard.client(USER))

    def address(self, kind: str) -> str:
        listener, _ = KINDS[kind]
        return self.broker.listeners.get(listener, self.broker.bootstrap_servers)

    def client(self, kind: str, user: str = USER, **changes: str) -> dict[str, str]:
        """Settings of a client library; `sasl_password=…` changes `sasl.password`."""
        listener, mechanism = KINDS[kind]
        found = self.guard.client(user, listener=listener, mechanism=mechanism)
        return found | {key.replace("_", "."): text for key, text in changes.items()}

    def kafka(self, kind: str, user: str = USER, **changes: str) -> dict[str, str]:
        """The same as `kafka.*` options."""
        return {f"kafka.{key}": text for key, text in self.client(kind, user, **changes).items()}

    def options(self, kind: str, user: str = USER, **changes: str) -> dict[str, str]:
        """The options of a source on the topic."""
        reached = self.cluster.kafka_options(self.topic, bootstrap_servers=self.address(kind))
        return reached | self.kafka(kind, user, **changes)

    def new_user(self) -> str:
        """Somebody who may do nothing, with a password for SCRAM."""
        user = unique("reader")
        self.guard.users[user] = secrets.token_urlsafe(16)
        set_password(self.cluster.admin, user, self.guard.users[user])
        return user

    def allow(self, line: str) -> None:
        """What a line of `kafka-acls` says."""
        self._grants.run(line)

    def acls_of(self, user: str) -> list[str]:
        """What a user is allowed, as such lines."""
        mine = f"--allow-principal User:{user} "
        return [line for line in self._grants.run("--list") if line.startswith(mine)]


@contextmanager
def guarded_cluster(folder: Path) -> Iterator[Guarded]:
    listeners = {
        "CLIENT": GuardedListener("SASL_PLAINTEXT", mechanisms=("PLAIN",)),
        "SCRAM": GuardedListener("SASL_SSL"),
        "TLS": GuardedListener("SSL"),
        "OWN": GuardedListener("SSL", certificate="own", hosts=("127.0.0.1",)),
        "MTLS": GuardedListener("SSL", asks_for_certificate=True),
    }
    supers = (USER, f"CN={USER}", "ANONYMOUS", *LATE)
    guard = Guard(folder / "security", listeners, acls=True, users={USER: PASSWORD}, supers=supers)
    (folder / "other").mkdir()
    broker = Broker(folder / "broker", guard=guard)
    broker.start()
    try:
        yield Guarded(broker, Authority(folder / "other").pem)
    finally:
        broker.stop()
