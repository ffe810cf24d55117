"""Asks the registry, remembers the answers, and says plainly why there is none.

An id means the same schema for ever, so it is asked for once a process. A subject's newest schema may
change, so it is asked for again after a while. If the registry is away, what was heard before goes on: by
this process, or by another one on this machine (`memory.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from forebay import patience
from forebay.backoff import with_backoff
from forebay.errors import (
    AuthError,
    ConnectorError,
    ForebayError,
    OptionValueError,
    RecordError,
    UnknownObjectError,
    UnreachableError,
)
from forebay.registry.causes import explained
from forebay.registry.memory import Memory
from forebay.registry.schemas import RegisteredSchema, Version
from forebay.registry.settings import PREFIX, RegistrySettings

log = logging.getLogger("forebay.registry")
T = TypeVar("T")

SUBJECT_AGE_S = 300.0  # how long a subject's newest schema is good
LOOKS = 4  # at an id that is not there: a follower may not have it yet; 100, 200, 400 ms between them
_WRONG_PLACE = f"check '{PREFIX}url': Apicurio has it at /apis/ccompat/v7, others at the root"
REQUEST_TIMEOUT_S = 10.0  # long enough for a registry in a long GC pause, short enough to try again soon
AWAY_S = 10.0  # how long a registry that did not answer is left alone, where its answer is remembered
REFUSED_S = 30.0  # how long an id that could not be had is not asked for again


class RegistryClient:
    """One registry, for one process. Any thread may ask."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self.address = settings.url
        self._client = _made(settings)
        self._lock = threading.RLock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._latest: dict[str, tuple[float, Version | None]] = {}
        self._refused: dict[int, tuple[float, RecordError]] = {}
        self._memory = Memory(settings)
        self._away_until = 0.0  # what is remembered is not asked for before
        self._tired_until = 0.0  # no long waiting before: somebody has just waited in vain

    def close(self) -> None:
        """Let go of the connections. The registry of `registry()` lives as long as the process."""
        self._client.close()

    # -- ids ------------------------------------------------------------------------------------------

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id. RecordError of kind UnknownSchemaId if it cannot be had, after retrying."""
        with self._lock:
            if schema_id in self._schemas:
                return self._schemas[schema_id]
            until, refusal = self._refused.get(schema_id, (0.0, None))
            if refusal is not None and time.monotonic() < until:
                raise refusal
            try:
                found = self._had(lambda: self._look(schema_id), lambda: self._recalled(f"id {schema_id}"))
            except (UnreachableError, UnknownObjectError) as error:
                refusal = RecordError(
                    f"schema id {schema_id} is not known: {error.message}", kind="UnknownSchemaId"
                )
                self._refused[schema_id] = time.monotonic() + REFUSED_S, refusal
                raise refusal from None
            self._schemas[schema_id] = found
            return found

    def _recalled(self, key: str) -> RegisteredSchema | None:
        known = self._memory.recall(key)
        return None if known is None else _schema_of(known)

    def _look(self, schema_id: int) -> RegisteredSchema:
        def look() -> RegisteredSchema:
            doing = f"asking for schema id {schema_id}"
            return self._complete(schema_id, self._ask(doing, self._client.get_schema, schema_id))

        found = with_backoff(look, on=UnknownObjectError, tries=LOOKS, timeout_s=None)
        self._memory.keep(f"id {schema_id}", asdict(found))
        return found

    def _complete(self, schema_id: int, schema: Schema) -> RegisteredSchema:
        found: dict[tuple[str, int], tuple[str, str]] = {}
        self._follow(schema.references or [], found)
        text, kind = schema.schema_str or "", schema.schema_type or "AVRO"
        return RegisteredSchema(schema_id, kind, text, tuple(found.values()))

    def _follow(
        self, references: list[SchemaReference], found: dict[tuple[str, int], tuple[str, str]]
    ) -> None:
        for reference in references:
            subject, version = str(reference.subject), int(reference.version or 0)
            if (subject, version) not in found:
                doing = f"asking for version {version} of '{subject}', which a schema refers to"
                schema = self._ask(doing, self._client.get_version, subject, version).schema
                self._follow(schema.references or [], found)
                found[subject, version] = str(reference.name), schema.schema_str or ""

    # -- subjects -------------------------------------------------------------------------------------

    def latest(self, subject: str) -> Version | None:
        """A subject's newest version, at most some minutes old; None if there is no such subject."""
        with self._lock:
            asked, known = self._latest.get(subject, (float("-inf"), None))
            if time.monotonic() - asked < SUBJECT_AGE_S:
                return known
            key = f"subject {subject}"
            try:
                found: Version | None = self._had(
                    lambda: self._newest(subject, key), lambda: known or _version_of(self._memory.recall(key))
                )
            except UnknownObjectError:
                found = None
            self._latest[subject] = time.monotonic(), found
            return found

    def _newest(self, subject: str, key: str) -> Version:
        found = self.version(subject)
        self._memory.keep(key, asdict(found))
        return found

    def version(self, subject: str, number: int | None = None) -> Version:
        """A version, the newest unless a number is given. Asked for anew; UnknownObjectError if there is none."""
        which = "the newest version" if number is None else f"version {number}"
        doing = f"asking for {which} of '{subject}'"
        # The client would keep the newest one for ever.
        self._client.clear_latest_caches()
        if number is None:
            found = self._ask(doing, self._client.get_latest_version, subject)
        else:
            found = self._ask(doing, self._client.get_version, subject, number)
        return Version(subject, int(found.version), self._complete(int(found.schema_id), found.schema))

    def subjects(self) -> list[str]:
        return sorted(self._ask("listing the subjects", self._client.get_subjects))

    def versions(self, subject: str) -> list[int]:
        return sorted(self._ask(f"listing the versions of '{subject}'", self._client.get_versions, subject))

    def compatibility(self, subject: str) -> str:
        """The rule that new versions of a subject are held to."""
        doing = f"asking for the compatibility of '{subject}'"
        try:
            return str(self._ask(doing, self._client.get_compatibility, subject))
        except UnknownObjectError:
            return str(self._ask("asking for the compatibility", self._client.get_compatibility))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Make a schema the newest of a subject, unless it is that already; its id."""
        doing = f"registering a schema under '{subject}'"
        return int(self._ask(doing, self._client.register_schema, subject, Schema(schema.text, schema.type)))

    def accepts(self, subject: str, schema: RegisteredSchema) -> bool:
        """Whether a schema would be taken as a subject's next version. Nothing is registered."""
        given = Schema(schema.text, schema.type)
        doing = f"checking a schema against '{subject}'"
        return bool(self._ask(doing, self._client.test_compatibility, subject, given))

    def check(self) -> None:
        """Raise if it does not answer, or not to us; one that is away is waited for."""
        try:
            self._patiently(self.subjects)
        except UnknownObjectError as error:
            raise ConnectorError(error.message, remedy=_WRONG_PLACE) from None

    # -- asking ---------------------------------------------------------------------------------------

    def _had(self, attempt: Callable[[], T], recall: Callable[[], T | None]) -> T:
        """Ask; if nobody answers, what is remembered will do; without that, wait for the registry."""
        if time.monotonic() < self._away_until and (known := recall()) is not None:
            return known
        try:
            return attempt()
        except UnreachableError as error:
            known = recall()
            if known is None:
                return self._patiently(attempt)
            log.warning("%s; going on with what it said before", error.message)
            self._away_until = time.monotonic() + AWAY_S
            return known

    def _patiently(self, attempt: Callable[[], T]) -> T:
        tired = time.monotonic() < self._tired_until
        timeout_s = 0.0 if tired else patience.at_most(self.settings.patience_s)
        try:
            return with_backoff(attempt, timeout_s=timeout_s, notify=_say)
        except UnreachableError:
            self._tired_until = time.monotonic() + REFUSED_S
            raise

    def _ask(self, doing: str, question: Callable[..., Any], *arguments: Any) -> Any:
        """One request; its failure as one of our errors."""
        try:
            with patience.waiting():
                patience.say(f"reaching the schema registry at {self.address}")
                return question(*arguments)
        except SchemaRegistryError as error:
            raise self._translated(error, doing) from None
        except httpx.TransportError as error:
            raise explained(error, self.address, doing) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConnectorError(
                f"{self.address} does not answer like a schema registry while {doing}: {type(error).__name__}",
                remedy=_WRONG_PLACE,
            ) from None

    def _translated(self, error: SchemaRegistryError, doing: str) -> ForebayError:
        status, text = error.http_status_code, f"{error.error_message} (HTTP {error.http_status_code})"
        where = f"the schema registry at {self.address}"
        if status in (401, 403):
            return AuthError(
                f"{where} refused the credentials while {doing} (HTTP {status})",
                remedy=f"check '{PREFIX}username' and '{PREFIX}password', or '{PREFIX}bearer.token'",
            )
        if error.error_code == -1 and status == 404:  # no words of a registry: a page of some web server
            return ConnectorError(
                f"{self.address} does not answer like a schema registry while {doing} (HTTP {status})",
                remedy=_WRONG_PLACE,
            )
        if status == 404:
            return UnknownObjectError(f"{where} does not have it, {doing}: {text}")
        if status in (408, 429) or status >= 500:
            return UnreachableError(f"{where} has trouble while {doing}: {text}")
        return ConnectorError(f"{where}, {doing}: {text}")


def _made(settings: RegistrySettings) -> SchemaRegistryClient:
    try:
        # A person who waits would not see the end of a longer one.
        timeout_s = patience.at_most(min(REQUEST_TIMEOUT_S, settings.patience_s))
        return SchemaRegistryClient(settings.client() | {"timeout": max(1.0, timeout_s)})
    except (OSError, ValueError) as error:
        # A file that is not there or not PEM, a key that its password does not open.
        names = {"ssl.ca.location": settings.ca, "ssl.certificate.location": settings.certificate}
        names |= {"ssl.key.location": settings.key}
        given = [name for name, path in names.items() if path]
        gone = [name for name in given if not Path(str(names[name])).exists()]
        name = (gone or given or ["url"])[0]
        reason = "there is no such file" if gone else str(error)
        raise OptionValueError(
            f"'{PREFIX}{name}' cannot be used: {reason}",
            option=f"{PREFIX}{name}",
            remedy="certificates and keys are PEM files, a key is opened by 'schema.registry.ssl.key.password'",
        ) from None


def _schema_of(kept: dict[str, Any]) -> RegisteredSchema:
    references = tuple((str(name), str(text)) for name, text in kept["references"])
    return RegisteredSchema(kept["id"], kept["type"], kept["text"], references)


def _version_of(kept: dict[str, Any] | None) -> Version | None:
    return None if kept is None else Version(kept["subject"], kept["version"], _schema_of(kept["schema"]))


def _say(error: ForebayError, wait_s: float) -> None:
    if not patience.somebody():
        log.warning("%s; trying again in %.1f s", error.message, wait_s)
