"""Who changed what, when: a log beside the catalog that is only ever added to.

The file itself refuses to change a line, or to remove one that is not old, whoever asks it with SQL. Lines past their
retention are removed, and a line says which. A line has no payload of a record and no secret:
`detail` is written by us, and what a person typed is masked before it comes here.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forebay.errors import ForebayError
from forebay.retention import DAY_MS, LEAST_AUDIT_DAYS, retention_ms
from forebay.sqlite import Step, migrate, transaction, write_ahead

log = logging.getLogger("forebay.audit")

LONGEST = 2_000  # characters of a detail or a message
Outcome = Literal["done", "refused", "failed"]


@dataclass(frozen=True)
class AuditEntry:
    """One change, or one that was refused."""

    id: int
    at_ms: int
    actor: str
    action: str
    target: str
    detail: str
    outcome: str
    message: str


def _first(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, actor TEXT NOT NULL, "
        "action TEXT NOT NULL, target TEXT NOT NULL, detail TEXT NOT NULL, outcome TEXT NOT NULL, message TEXT NOT NULL)"
    )
    for verb in ("UPDATE", "DELETE"):
        db.execute(
            f"CREATE TRIGGER no_{verb.lower()} BEFORE {verb} ON audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END"
        )

    # REPLACE removes a line without asking the trigger above.
    db.execute(
        "CREATE TRIGGER no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END"
    )


def _ends(db: sqlite3.Connection) -> None:
    """Version 2: lines that are old may go."""
    db.execute("DROP TRIGGER no_delete")
    db.execute(
        "CREATE TRIGGER no_delete BEFORE DELETE ON audit "
        "WHEN OLD.at_ms > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - "
        f"{LEAST_AUDIT_DAYS * DAY_MS} "
        f"BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to: a line stays for {LEAST_AUDIT_DAYS} days at least'); END"
    )


STEPS: tuple[Step, ...] = (_first, _ends)


class AuditLog:
    """Of a home. Any process may write to it, and read it. The file is made by the first line that is written."""

    def __init__(self, home: Path) -> None:
        self._path = home / "audit.db"
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._swept_ms = 0

    def add(
        self,
        actor: str,
        action: str,
        target: str,
        detail: str = "",
        outcome: Outcome = "done",
        message: str = "",
    ) -> None:
        """Write a line; it is on the disk when this returns."""
        line = (
            int(time.time() * 1000), _short(actor), _short(action), _short(target), _short(detail), outcome,
            _short(message),
        )  # fmt: skip
        with self._lock, transaction(self._writable()) as _:
            self._sweep(line[0])
            self._insert(line)

    def _insert(self, line: tuple[int | str, ...]) -> None:
        self._writable().execute(
            "INSERT INTO audit (at_ms, actor, action, target, detail, outcome, message) VALUES (?, ?, ?, ?, ?, ?, ?)",
            line,
        )

    def _sweep(self, now_ms: int) -> None:
        """Once a day: lines past the retention go, in the transaction of the line that says so."""
        if now_ms - self._swept_ms < DAY_MS:
            return
        try:
            kept_ms = retention_ms("audit_retention_days")
        except ForebayError as error:  # a change must not fail for it
            log.error("the audit log keeps all its lines: %s", error.message)
            return
        self._swept_ms = now_ms
        oldest = now_ms - kept_ms
        found = "FROM audit WHERE at_ms < ?"
        first, last, lines = (
            self._writable().execute(f"SELECT min(id), max(id), count(*) {found}", (oldest,)).fetchone()
        )
        if lines:
            self._writable().execute(f"DELETE {found}", (oldest,))
            detail = f"{lines} lines older than {kept_ms // DAY_MS} days, of the numbers {first} to {last}"
            self._insert((now_ms, "forebay", "remove old lines", "audit log", detail, "done", ""))

    @contextmanager
    def noted(self, actor: str, action: str, target: str, detail: str = "") -> Iterator[Note]:
        """A change is made in this block: it is written down whether it is done or fails, and why."""
        note = Note(detail)
        try:
            yield note
        except Exception as error:
            said = error.message if isinstance(error, ForebayError) else type(error).__name__
            self._try(actor, action, target, note.detail, "failed", said)
            raise
        self._try(actor, action, target, note.detail, "done", note.message)

    def _try(self, actor: str, action: str, target: str, detail: str, outcome: Outcome, message: str) -> None:
        """What is done is done: a log that cannot be written, on a full disk, must not make it look undone."""
        try:
            self.add(actor, action, target, detail, outcome, message)
        except sqlite3.Error as error:
            log.error(
                "the audit log cannot be written (%s): %s of %s by %s: %s",
                error,
                action,
                target,
                actor,
                outcome,
            )

    def entries(self, limit: int | None = None) -> list[AuditEntry]:
        """The newest first."""
        if not self._path.exists():
            return []
        with self._lock:
            rows = self._writable().execute(
                "SELECT id, at_ms, actor, action, target, detail, outcome, message FROM audit ORDER BY id DESC LIMIT ?",
                (-1 if limit is None else limit,),
            )
            return [AuditEntry(*row) for row in rows.fetchall()]

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _writable(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
            self._path.chmod(0o600)
            write_ahead(self._db)
            migrate(self._db, STEPS)
            self._db.execute("PRAGMA synchronous=FULL")
        return self._db


@dataclass
class Note:
    """What will stand in the line: whoever makes the change may say more while it is made."""

    detail: str = ""
    message: str = ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
