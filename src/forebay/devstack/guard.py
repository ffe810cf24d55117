"""Who is let in: certificates, users and listeners of a broker that asks who is there.

All of it is made when the broker is first started, and kept in its folder in files that only their owner may read. The
broker talks to itself by TLS with a certificate of its own, so that no port is open to who has none.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from forebay.devstack.ports import HOST
from forebay.devstack.private_files import files_of, write_private

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ADMIN, USER, BROKER = "admin", "forebay", "broker"
CLIENT_FILE, ENVIRONMENT_FILE, ADMIN_FILE = "client.properties", "client.env", "admin.properties"
HOSTS = ("localhost", HOST)
_LOGIN = "org.apache.kafka.common.security"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_ITERATIONS = 4096  # the least that Kafka takes: these passwords are random, and nobody guesses them


class Security(StrEnum):
    """What the broker of the stack asks for."""

    SASL_SSL = "sasl-ssl"  # TLS, and a password: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    MTLS = "mtls"  # TLS, and a certificate of the client
    ACL = "acl"  # as sasl-ssl; and what a user may do must be allowed to them


@dataclass(frozen=True)
class GuardedListener:
    """`protocol` is Kafka's security.protocol; `certificate` names the one that the listener shows.

    One that is not the broker's own signs itself, for the `hosts`.
    """

    protocol: str
    asks_for_certificate: bool = False
    mechanisms: tuple[str, ...] = MECHANISMS
    certificate: str = BROKER
    hosts: tuple[str, ...] = HOSTS

    @property
    def logs_in(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")


@dataclass
class Guard:
    """Of one broker. CLIENT must be among the listeners. With `acls`, only the `supers` may do what they want.

    `users` are given passwords by name; the admin's and the user's are made unless they are there.
    """

    folder: Path
    listeners: Mapping[str, GuardedListener]
    acls: bool = False
    users: dict[str, str] = field(default_factory=dict, repr=False)
    supers: tuple[str, ...] = ()

    @classmethod
    def of(cls, security: Security, folder: Path) -> Guard:
        """The guard of a stack that asks for this."""
        mtls = security is Security.MTLS
        client = GuardedListener("SSL", asks_for_certificate=True) if mtls else GuardedListener("SASL_SSL")
        return cls(folder, {"CLIENT": client}, acls=security is Security.ACL)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def prepare(self) -> None:
        """Make certificates and passwords, unless they are there from the start before."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = self.folder / "users.json"
        if known.exists():
            self.users = json.loads(known.read_text(encoding="utf-8"))
            return
        self.users = {name: secrets.token_urlsafe(24) for name in (ADMIN, USER)} | self.users
        from forebay.devstack.certificates import (
            Authority,  # what it imports is for those alone who start a broker
        )

        authority = Authority(self.folder)
        authority.issue(BROKER, HOSTS)
        for name in self.users:
            authority.issue(name)
        for listener in self.listeners.values():
            if listener.certificate != BROKER:
                authority.issue(listener.certificate, listener.hosts, signs_itself=True)
        write_private(known, json.dumps(self.users).encode())  # the last: from here on all of it is there

    def properties(self) -> dict[str, str]:
        """Kafka's server properties."""
        protocols = {name: listener.protocol for name, listener in self.listeners.items()}
        protocols |= {"INTERNAL": "SSL", "CONTROLLER": "SSL"}
        found = {
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(files_of(self.folder, BROKER).store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
        }
        for name, listener in self.listeners.items():
            found |= self._listener(f"listener.name.{name.lower()}.", listener)
        if self.acls:
            names = (f"CN={BROKER}", ADMIN, f"CN={ADMIN}", *self.supers)
            found["authorizer.class.name"] = _AUTHORIZER
            found["super.users"] = ";".join(f"User:{name}" for name in names)
        return found

    def _listener(self, prefix: str, listener: GuardedListener) -> dict[str, str]:
        found = {}
        if listener.asks_for_certificate:
            found[prefix + "ssl.client.auth"] = "required"
        if listener.certificate != BROKER:
            found[prefix + "ssl.keystore.location"] = str(files_of(self.folder, listener.certificate).store)
        if listener.logs_in:
            plain = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
            found[prefix + "sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
            found[prefix + "plain.sasl.jaas.config"] = f"{_LOGIN}.plain.PlainLoginModule required {plain};"
            for mechanism in _SCRAM:
                found[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{_LOGIN}.scram.ScramLoginModule required;"
                )
        return found

    # -- clients -------------------------------------------------------------------------------------

    def client(
        self, user: str = USER, *, listener: str = "CLIENT", mechanism: str | None = None
    ) -> dict[str, str]:
        """The settings of a client library that connects to a listener as this user, with its strongest mechanism."""
        asked = self.listeners[listener]
        found = {"security.protocol": asked.protocol}
        if asked.tls:
            signed_itself = asked.certificate != BROKER
            shown = files_of(self.folder, asked.certificate).certificate
            found["ssl.ca.location"] = str(shown if signed_itself else self.ca)
        if asked.asks_for_certificate:
            found |= self._shown(user)
        if asked.logs_in:
            found["sasl.mechanism"] = mechanism or asked.mechanisms[-1]
            found |= {"sasl.username": user, "sasl.password": self.users[user]}
        return found

    def _shown(self, user: str) -> dict[str, str]:
        files = files_of(self.folder, user)
        return {"ssl.certificate.location": str(files.certificate), "ssl.key.location": str(files.key)}

    def internal(self) -> dict[str, str]:
        """The settings of the stack itself, on the listener that the broker talks to itself at."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca), **self._shown(BROKER)}

    def write_client_files(self, servers: str) -> None:
        """What a user takes to connect: settings as properties, and the same as a shell's environment."""
        for name, user in ((CLIENT_FILE, USER), (ADMIN_FILE, ADMIN)):
            self._write_properties(self.folder / name, self.client(user))
        environment = {"KAFKA_BOOTSTRAP_SERVERS": servers, "FOREBAY_KAFKA_CONFIG": self.folder / CLIENT_FILE}
        environment |= {
            "KAFKA_" + key.upper().replace(".", "_"): value for key, value in self.client(USER).items()
        }
        lines = [f"export {key}={shlex.quote(str(value))}\n" for key, value in environment.items()]
        write_private(self.folder / ENVIRONMENT_FILE, "".join(lines).encode())

    def _write_properties(self, path: Path, settings: Mapping[str, str]) -> None:
        write_private(path, javaproperties.dumps(settings, timestamp=None).encode("ascii"))

    # -- the broker's side ---------------------------------------------------------------------------

    def enrol(self, admin: AdminClient) -> None:
        """Tell the broker the SCRAM passwords, which it keeps in its metadata."""
        if not any(listener.logs_in for listener in self.listeners.values()):
            return
        for user, password in self.users.items():
            set_password(admin, user, password)

    def lets_in(self, servers: str) -> bool:
        """Whether the user gets in at CLIENT: a password is known a moment after the broker took it."""
        client: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, **self.client()}
        try:
            return bool(AdminClient(client).list_topics(timeout=2).brokers)
        except KafkaException:
            return False


def set_password(admin: AdminClient, user: str, password: str) -> None:
    """A user's password, for SCRAM. PLAIN has those that the broker was started with."""
    changes = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, _ITERATIONS), password.encode())
        for kind in _SCRAM.values()
    ]
    for change in changes:  # a request may name a user once
        admin.alter_user_scram_credentials([change])[user].result(30)
