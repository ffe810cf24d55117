"""Where a registry is, who asks, and under which subjects a source's schemas are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from forebay.errors import MissingOptionError, OptionValueError

PREFIX = "schema.registry."


@dataclass(frozen=True)
class RegistrySettings:
    """All that a client is made from. Pickles, and may be the key of a cache; secrets are not shown."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    patience_s: float = 60.0
    """How long a registry that does not answer is asked again."""

    def __post_init__(self) -> None:
        for url in self.url.split(","):
            parts = urlsplit(url.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise OptionValueError(
                    f"'{PREFIX}url' is not an address: {_plain(url.strip())!r}",
                    option=f"{PREFIX}url",
                    remedy="for example http://localhost:8081",
                )
            if "@" in parts.netloc:
                # An address is shown in many places, and so would be the password.
                raise OptionValueError(
                    f"'{PREFIX}url' holds a user or a password: {_plain(url.strip())!r} without it",
                    option=f"{PREFIX}url",
                    remedy="USING SCHEMA REGISTRY (url = '…', username = '…', password = '${REGISTRY_PASSWORD}')",
                )
        if self.password and not self.username:
            raise MissingOptionError(
                f"'{PREFIX}password' needs '{PREFIX}username'", option=f"{PREFIX}username"
            )
        if self.key and not self.certificate:
            raise MissingOptionError(
                f"'{PREFIX}ssl.key.location' needs '{PREFIX}ssl.certificate.location'",
                option=f"{PREFIX}ssl.certificate.location",
            )

    def client(self) -> dict[str, Any]:
        """As confluent-kafka's client wants them. It does not retry: we do, and say so."""
        settings: dict[str, Any] = {"url": self.url, "max.retries": 0}
        if self.username:
            settings["basic.auth.user.info"] = f"{self.username}:{self.password or ''}"
        if self.token:
            settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
            settings["bearer.auth.token"] = self.token
            settings["bearer.auth.logical.cluster"] = ""  # the client insists; only Confluent Cloud looks
        files = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
            "ssl.key.password": self.key_password,
        }
        return settings | {key: value for key, value in files.items() if value}


@dataclass(frozen=True)
class Evolution:
    """What becomes of records whose schema is not one of those that the source's columns are from."""

    policy: str = "ignore"  # or reject, or evolve
    since: tuple[int, ...] = ()  # their ids; the last is the newest


@dataclass(frozen=True)
class Origin:
    """Where the schemas of one part of a source's records are. Pickles."""

    settings: RegistrySettings
    subjects: tuple[str, ...] = ()
    """Under which the reader's schema is looked for; none: the columns alone say what is read."""
    evolution: Evolution = Evolution()


def origin(options: Mapping[str, Any], part: str = "value") -> Origin | None:
    """From a source's options; None where it has no registry. `part` is value or key."""
    if not options["schema.registry.url"]:
        return None
    settings = RegistrySettings(
        url=options["schema.registry.url"],
        username=options["schema.registry.username"],
        password=options["schema.registry.password"],
        token=options["schema.registry.bearer.token"],
        ca=options["schema.registry.ssl.ca.location"],
        certificate=options["schema.registry.ssl.certificate.location"],
        key=options["schema.registry.ssl.key.location"],
        key_password=options["schema.registry.ssl.key.password"],
        patience_s=options["connect.timeout.ms"] / 1000,
    )
    topics = [options["topic"]] if options["topic"] else list(options["topics"] or ())
    strategy, record = (options[f"{PREFIX}{name}"] for name in ("subject.name.strategy", "record.name"))
    names = [subject_name(strategy, topic, record, part) for topic in (topics or [None])]
    # The columns of a key are named by the statement: no schema adds to them.
    evolution = Evolution(options["schema.evolution"], options["schema.evolution.from"] or ())
    return Origin(
        settings,
        tuple(dict.fromkeys(name for name in names if name)),
        evolution if part == "value" else Evolution(),
    )


def subject_name(strategy: str, topic: str | None, record: str | None, part: str = "value") -> str | None:
    """As Confluent's serializers name it; None where the topic or the record is not known beforehand."""
    match strategy:
        case "topic":
            return f"{topic}-{part}" if topic else None
        case "record":
            return record
        case _:
            return f"{topic}-{record}" if topic and record else None


def _plain(url: str) -> str:
    """An address, or what was given for one, without user and password."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
