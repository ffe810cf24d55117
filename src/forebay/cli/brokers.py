"""Where the brokers and the registry are: a flag, the environment, the running dev stack, or localhost.

What `forebay.toml` says is in the environment by now, unless that had it before (`cli/profile.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from forebay.errors import MissingOptionError, OptionValueError
from forebay.patience import PATIENCE_S
from forebay.project import LOCAL

if TYPE_CHECKING:
    from forebay.options import Options
    from forebay.registry.client import RegistryClient

T = TypeVar("T")
HOST = "127.0.0.1"  # what the dev stack calls itself

BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        "-b",
        help="host:port, …; KAFKA_BOOTSTRAP_SERVERS unless given, else forebay.toml, the running dev stack, localhost:9092",
        show_default=False,
    ),
]
RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        help="the schema registry; SCHEMA_REGISTRY_URL unless given, else forebay.toml, the running dev stack",
        show_default=False,
    ),
]
KafkaConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        help="a properties file of client settings, as Kafka's own tools take one: security.protocol=SASL_SSL, sasl.username, "
        "ssl.ca.location, …; FOREBAY_KAFKA_CONFIG unless given, else forebay.toml, the running dev stack's",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="an option of a Kafka source, such as kafka.security.protocol=SASL_SSL; may be repeated",
        show_default=False,
    ),
]


def brokers(given: str | None) -> str:
    """A flag wins, also an empty one: that is a mistake to be named, not a wish for another broker."""
    if given is not None:
        return given
    return os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or running("bootstrap_servers") or LOCAL


def running(what: str) -> str | None:
    """An address of the stack that `forebay dev up` left running, if it still runs."""
    from forebay.devstack import daemon

    found: str | None = getattr(daemon.status(), what)
    return found


def client_settings(servers: str, file: Path | None = None) -> dict[str, str]:
    """The settings of a file, as `kafka.*` options: one that was named, else the dev stack's, if these are its brokers."""
    named = file or os.environ.get("FOREBAY_KAFKA_CONFIG")
    if not named:
        own = _same(servers, running("bootstrap_servers"))
        named = running("client_config") if own else None
    return _read(Path(named)) if named else {}


def _same(servers: str, other: str | None) -> bool:
    return other is not None and servers.replace("localhost:", f"{HOST}:") == other


def _read(path: Path) -> dict[str, str]:
    import javaproperties

    try:
        found = javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionValueError(
            f"the client settings in {path} cannot be read: {error}", option="kafka-config"
        ) from None
    return {f"kafka.{key}": value for key, value in found.items()}


def options(
    given: str | None,
    topic: str = "-",
    pairs: list[str] | None = None,
    kafka_config: Path | None = None,
) -> Options:
    """How the brokers are reached, as a Kafka source's options."""
    from forebay.kafka.options import KAFKA
    from forebay.kafka.topics import settings_of

    servers = brokers(given)
    named = client_settings(servers, kafka_config) | {
        "bootstrap.servers": servers,
        "topic": topic,
        "group.id": "forebay-cli",
        "connect.timeout.ms": str(int(PATIENCE_S * 1000)),
    }
    return KAFKA.bind(named | settings_of(pairs or (), "--set"))


def patiently(attempt: Callable[[], T]) -> T:
    """Try for five seconds; what is waited for is shown meanwhile (`forebay.patience`)."""
    from forebay.backoff import with_backoff

    return with_backoff(attempt, timeout_s=PATIENCE_S)


def registry(given: str | None, environment: Mapping[str, str] = os.environ) -> RegistryClient:
    """The schema registry. Its credentials come from the environment alone."""
    from forebay.registry import RegistrySettings
    from forebay.registry.client import RegistryClient

    def known(name: str) -> str | None:
        return environment.get(f"SCHEMA_REGISTRY_{name}") or None

    url = given if given is not None else known("URL") or running("schema_registry_url")
    if not url:
        raise MissingOptionError(
            "which registry?",
            remedy="--registry (of forebay schema: --url) http://localhost:8081, or export SCHEMA_REGISTRY_URL=…, or "
            "start one with: forebay dev up",
        )
    return RegistryClient(
        RegistrySettings(
            url=url,
            username=known("USERNAME"),
            password=known("PASSWORD"),
            token=known("TOKEN"),
            ca=known("SSL_CA_LOCATION"),
            certificate=known("SSL_CERTIFICATE_LOCATION"),
            key=known("SSL_KEY_LOCATION"),
            key_password=known("SSL_KEY_PASSWORD"),
            patience_s=PATIENCE_S,
        )
    )
