"""`forebay.toml`: what the commands take for granted in a folder, where neither a flag nor the environment says.

    home = ".forebay"            # relative to the file, wherever below it a command is typed
    brokers = "dev"              # the broker of `forebay dev up`; or host:port, …
    registry = "dev"
    kafka_config = "client.properties"   # how the commands log in

    [profiles.production]        # `--profile production`: these instead of those above
    brokers = "${PRODUCTION_BROKERS}"

Each key stands for an environment variable, which comes first where it is set. So a pipeline's `${NAME}`, a pool's options
and every flag's default see the same value.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forebay.errors import (
    DeniedOptionError,
    OptionError,
    OptionValueError,
    Position,
    UnknownObjectError,
    UnknownOptionError,
)
from forebay.options import TEXT, Option, OptionTable, expand, suggestion
from forebay.retention import RETENTION

FILE = "forebay.toml"
DEV = "dev"
LOCAL = "localhost:9092"
PROFILES = "profiles"
VARIABLES = {
    "home": "FOREBAY_HOME",
    "brokers": "KAFKA_BOOTSTRAP_SERVERS",
    "kafka_config": "FOREBAY_KAFKA_CONFIG",
    "registry": "SCHEMA_REGISTRY_URL",
    "storage": "FOREBAY_STORAGE",
    "checkpoints": "FOREBAY_CHECKPOINTS",
    **{option.name: option.env for option in RETENTION.options},
}
"""The environment variable that each key is the default of."""

PROJECT = OptionTable(
    FILE,
    (
        Option("home", TEXT, "where sources, views and checkpoints are kept, relative to the file; "
               "`FOREBAY_HOME` comes first", example=".forebay"),
        Option("brokers", TEXT, "host:port, separated by commas; `dev` is the broker of `forebay dev up`; "
               "`KAFKA_BOOTSTRAP_SERVERS` comes first", example="localhost:9092"),
        Option("kafka_config", TEXT, "a properties file with the client settings of the commands, relative to the file: "
               "`security.protocol`, `sasl.*`, `ssl.*`; `FOREBAY_KAFKA_CONFIG` comes first", example="client.properties"),
        Option("registry", TEXT, "the schema registry's address, without user and password; `dev` is that of "
               "`forebay dev up`; `SCHEMA_REGISTRY_URL` comes first", example="http://localhost:8081"),
        Option("storage", TEXT, "where the tables of new views are, `s3://bucket/prefix`, with credentials from the environment; "
               "in the home unless given; `FOREBAY_STORAGE` comes first", example="s3://lake/forebay"),
        Option("checkpoints", TEXT, "where the checkpoints of new reads are, `hdfs://host:port/folder`; in the home unless given; "
               "`FOREBAY_CHECKPOINTS` comes first", example="hdfs://namenode:8020/forebay"),
        *RETENTION.options,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Project:
    """A file that was read and checked. `settings` are those of the profile over those of the file."""

    path: Path
    profile: str | None
    settings: Mapping[str, str]
    text: str

    def value(self, key: str) -> str | None:
        """A setting, its references replaced; None where it is not set."""
        given = self.settings.get(key)
        if given is None:
            return None
        try:
            value = expand(given)
        except OptionValueError as error:
            raise OptionValueError(
                f"{self.path}: '{key}' refers to the environment variable {error.option}, which is not set",
                option=key,
                remedy=error.remedy,
            ).at(self._place(key), self.text) from None
        if key in ("home", "kafka_config"):
            return str(self.path.parent / Path(value).expanduser())
        if value == DEV:
            return _dev(key)
        return value

    def _place(self, key: str) -> Position | None:
        own = place(self.text, (PROFILES, self.profile, key)) if self.profile else None
        return own or place(self.text, (key,))


def find(start: Path | None = None) -> Path | None:
    """The file in a folder or in the nearest one above it that has one."""
    folder = (start or Path.cwd()).resolve()
    for each in (folder, *folder.parents):
        if (each / FILE).is_file():
            return each / FILE
    return None


def read(path: Path, profile: str | None = None) -> Project:
    """Read a file and check all of it, the profiles that are not asked for as well."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionValueError(f"{path} cannot be read: {error}") from None
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, str(error)) from None
    profiles = given.pop(PROFILES, {})
    _check(path, text, (), given, extra=(PROFILES,))
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise OptionValueError(
            f"{path}: a profile is a table", option=PROFILES, remedy=f"[{PROFILES}.production]"
        ).at(place(text, (PROFILES,)), text)
    for name, settings in profiles.items():
        _check(path, text, (PROFILES, name), settings)
    if profile is None:
        return Project(path, None, given, text)
    if profile not in profiles:
        raise _no_profile(path, profile, list(profiles))
    return Project(path, profile, given | profiles[profile], text)


def offer(
    profile: str | None, *, environ: MutableMapping[str, str] = os.environ, start: Path | None = None
) -> Project | None:
    """Set the variables that are not set yet to what the file of this folder says, if there is one."""
    path = find(start)
    if path is None:
        if profile:
            raise UnknownObjectError(
                f"there is no profile '{profile}': no {FILE} in this folder or above it",
                remedy="forebay init makes one",
            )
        return None
    project = read(path, profile or None)
    for key, variable in VARIABLES.items():
        if not environ.get(variable) and (value := project.value(key)) is not None:
            environ[variable] = value
    return project


def profiles(start: Path | None = None) -> list[str]:
    """The names of the profiles, for completion."""
    path = find(start)
    return [] if path is None else list(tomllib.loads(path.read_text(encoding="utf-8")).get(PROFILES, {}))


def place(text: str, key: tuple[str, ...]) -> Position | None:
    """Where a key stands. `tomllib` does not say; a key in an inline table is not found."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (r"\s*\[\s*([^\[\]=#]+?)\s*\]", r"\s*([^\[\]=#]+?)\s*="):
            match = re.match(pattern, line)
            if match is None:
                continue
            words = tuple(word.strip(" \"'") for word in match[1].split("."))
            if "[" in match[0]:
                table, words = words, ()
            if (*table, *words)[: len(key)] == key:
                return Position(number, match.start(1) + 1, len(match[1]))
            break
    return None


def _check(
    path: Path, text: str, table: tuple[str, ...], given: Mapping[str, Any], extra: tuple[str, ...] = ()
) -> None:
    for key, value in given.items():
        try:
            _check_one(key, value, extra)
        except OptionError as error:
            error.message = f"{path}: {error.message}"
            raise error.at(place(text, (*table, key)), text) from None


def _check_one(key: str, value: Any, extra: tuple[str, ...]) -> None:
    option = PROJECT.get(key)
    if option is None:
        raise UnknownOptionError(
            f"there is no setting '{key}'", option=key, remedy=suggestion(key, (*PROJECT.names(), *extra))
        )
    if not isinstance(value, str) or not value.strip():
        raise OptionValueError(
            f"'{key}' is a text, and not {value!r}", option=key, remedy=f'{key} = "{option.example}"'
        )
    if key in RETENTION and "${" not in value:
        RETENTION.bind({key: value})
    if key == "registry" and "@" in urlsplit(value).netloc:
        raise DeniedOptionError(
            "'registry' holds a user or a password, which do not belong into a file",
            option=key,
            remedy="the address alone; export SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_PASSWORD, or in SQL "
            "USING SCHEMA REGISTRY (url = '…', username = '…', password = '${NAME}')",
        )


def _not_toml(path: Path, text: str, why: str) -> OptionValueError:
    found = re.search(r" \(at line (\d+), column (\d+)\)", why)
    position = Position(int(found[1]), int(found[2])) if found else None
    reason = why.replace(found[0], "") if found else why
    error = OptionValueError(
        f"{path} is not TOML: {reason}", remedy='a setting is written: brokers = "localhost:9092"'
    )
    error.at(position, text)
    return error


def _no_profile(path: Path, profile: str, known: list[str]) -> UnknownObjectError:
    near = difflib.get_close_matches(profile, known, 1, 0.5)
    there = f"there are: {', '.join(known)}" if known else f"add [{PROFILES}.{profile}] to it"
    return UnknownObjectError(
        f"{path} has no profile '{profile}'", remedy=f"did you mean '{near[0]}'?" if near else there
    )


def _dev(key: str) -> str | None:
    """An address of the running dev stack. Where none runs, an error about localhost names `forebay dev up`."""
    from forebay.devstack import daemon

    now = daemon.status()
    return now.schema_registry_url if key == "registry" else now.bootstrap_servers or LOCAL
