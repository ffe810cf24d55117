"""What the parts of the backend share: the home, its catalog, its sources, the session if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.catalog import Catalog
from forebay.catalog.audit import AuditLog
from forebay.errors import ReadOnlyError
from forebay.runtime.home import Home
from forebay.runtime.known import KnownSources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.connectors.contract import SourceConnector
    from forebay.deadletter.desk import LetterHome
    from forebay.deadletter.letters import DeadLetters
    from forebay.options import Options
    from forebay.runtime.session import Session


@dataclass(frozen=True)
class Ground:
    """Of one dashboard. Its connections to the catalog are its own: a session in the process has others."""

    path: Path
    catalog: Catalog
    sources: KnownSources
    home: Home
    audit: AuditLog
    session: Session | None
    read_only: bool
    hide_payloads: bool

    @classmethod
    def of(cls, path: Path, session: Session | None, *, read_only: bool, hide_payloads: bool) -> Ground:
        catalog = Catalog(path / "catalog.db")
        return cls(
            path,
            catalog,
            KnownSources(path, catalog),
            Home(path),
            AuditLog(path),
            session,
            read_only,
            hide_payloads,
        )

    def connector(self, source: str) -> SourceConnector:
        """A source's connector, not connected; with its secrets where the session has them."""
        return self.home.source(source) if self.session is None else self.session.source(source)

    def options(self, source: str) -> Options:
        """A source's options. SecretMissingError where one is needed that only a session has."""
        return self.sources.options(source) if self.session is None else self.session.source(source).options

    def letter_home(self) -> LetterHome:
        """Whose letters are looked at: the session's, which knows secrets, or those of a home that is only looked at."""
        return self.home if self.session is None else SessionLetters(self.path, self.session)

    def check_writable(self, actor: str, action: str, target: str) -> None:
        """ReadOnlyError, and a line in the audit log, where nothing may be changed."""
        if self.read_only:
            self.audit.add(actor, action, target, outcome="refused", message="the dashboard is read-only")
            raise ReadOnlyError(f"the dashboard is read-only, and does not {action} '{target}'")

    def close(self) -> None:
        self.home.close()
        self.catalog.close()
        self.audit.close()


@dataclass(frozen=True)
class SessionLetters:
    """A session as a desk sees it."""

    path: Path
    session: Session

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters:
        return self.session.dead_letters(source, topic=topic, options=options)
