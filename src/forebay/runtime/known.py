"""Sources as the catalog has them: enough to list them, to ask for their lag and to read their letters.

Nothing here parses SQL or needs Spark: what a CREATE SOURCE says is kept beside its text when the source is created. A
catalog from before that is parsed, which takes longer and gives the same.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.catalog import Catalog, Definition
from forebay.deadletter.policy import ErrorPolicy
from forebay.errors import UnknownObjectError
from forebay.options import Options

if TYPE_CHECKING:
    from forebay.connectors.contract import SourceConnector
    from forebay.runtime.sources import Sources


@dataclass(frozen=True)
class OnErrorFacts:
    """An ON ERROR clause."""

    strategy: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class SourceFacts:
    """What a CREATE SOURCE says. Secrets among the options are masked."""

    connector: str
    options: Mapping[str, str]
    columns: tuple[str, ...]
    on_error: OnErrorFacts | None

    def to_json(self, text: str) -> dict[str, Any]:
        """`text` is the statement that they are of."""
        return {**asdict(self), "of": _digest(text)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any] | None, text: str) -> SourceFacts | None:
        """None where nothing is kept, or it is of another text: facts that are out of date would mislead."""
        if kept is None or kept["of"] != _digest(text):
            return None
        clause = kept["on_error"]
        return cls(
            kept["connector"],
            kept["options"],
            tuple(kept["columns"]),
            None if clause is None else OnErrorFacts(clause["strategy"], clause["options"]),
        )


class KnownSources:
    """The sources of a home, for those who look at them."""

    def __init__(self, home: Path, catalog: Catalog) -> None:
        self._home = home
        self._catalog = catalog

    def names(self) -> list[str]:
        return [definition.name for definition in self._catalog.all("source")]

    def has(self, name: str) -> bool:
        """Whether there is a source of that name."""
        found = self._catalog.get(name)
        return found is not None and found.kind == "source"

    def definition(self, name: str) -> str:
        """The statement that made it, as it is kept."""
        return self._definition(name).sql

    def facts(self, name: str) -> SourceFacts:
        definition = self._definition(name)
        return self._facts(definition.detail.get("facts"), definition.sql)

    def policy(self, name: str) -> ErrorPolicy:
        """As the catalog has it: another session may have altered it."""
        return self._policy(self.facts(name).on_error)

    def created_policy(self, name: str) -> ErrorPolicy:
        """The one that the source was created with: what it wrote then is still there."""
        detail = self._definition(name).detail
        if "created" not in detail:
            return self.policy(name)
        return self._policy(self._facts(detail.get("created_facts"), detail["created"]).on_error)

    def options(self, name: str) -> Options:
        """Its options, checked. SecretMissingError where one is needed that only the CREATE SOURCE had."""
        facts = self.facts(name)
        if facts.connector != "kafka":
            return self.peek(name).options
        from forebay.kafka.options import KAFKA

        return KAFKA.bind(facts.options)

    def peek(self, name: str) -> SourceConnector:
        """The connector without connecting. It knows column types, so this imports Spark's."""
        return self._sources().peek(name)

    def connector(self, name: str) -> SourceConnector:
        """The connector, opened by this call. It knows column types, so this imports Spark's."""
        return self._sources().connector(name)

    def _sources(self) -> Sources:
        from forebay.connectors.registry import default_registry
        from forebay.runtime.sources import Sources

        return Sources(self._home, self._catalog, default_registry())

    def _facts(self, kept: Mapping[str, Any] | None, text: str) -> SourceFacts:
        return SourceFacts.from_json(kept, text) or self._sources().parsed_facts(text)

    def _definition(self, name: str) -> Definition:
        definition = self._catalog.get(name)
        if definition is None or definition.kind != "source":
            raise unknown("source", name, self.names())
        return definition

    def _policy(self, clause: OnErrorFacts | None) -> ErrorPolicy:
        if clause is None:
            return ErrorPolicy()
        policy = ErrorPolicy.of(clause.strategy, clause.options)
        # A relative path must mean the same folder wherever a session is opened, and in every task.
        return policy if policy.path is None else replace(policy, path=str(self._home / policy.path))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def unknown(kind: str, name: str, known: list[str]) -> UnknownObjectError:
    near = difflib.get_close_matches(name, known, 3, 0.5)
    if near:
        remedy = "did you mean " + " or ".join(f"'{item}'" for item in near) + "?"
    else:
        remedy = f"there are: {', '.join(known)}" if known else f"there are no {kind}s yet"
    return UnknownObjectError(f"there is no {kind} '{name}'", remedy=remedy)
