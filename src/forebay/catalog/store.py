"""The catalog's tables and the questions asked of them.

Any process may read it while another runs a pipeline (SQLite in WAL mode). Definitions are kept as the
SQL that made them, with secrets masked: a secret is never written to disk.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

BATCHES_KEPT = 1_000  # per view: enough to look back some minutes, small enough to read at once
HISTORY_KEPT = 1_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, definition TEXT NOT NULL, created_ms INTEGER NOT NULL,
    detail TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS status (
    view TEXT PRIMARY KEY, state TEXT NOT NULL, message TEXT NOT NULL, pid INTEGER NOT NULL,
    since_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS status_history (
    id INTEGER PRIMARY KEY, view TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS batches (
    view TEXT NOT NULL, batch INTEGER NOT NULL, at_ms INTEGER NOT NULL, records INTEGER NOT NULL,
    rejected INTEGER NOT NULL, duration_ms INTEGER NOT NULL, PRIMARY KEY (view, batch)
);
CREATE TABLE IF NOT EXISTS totals (
    view TEXT NOT NULL, source TEXT NOT NULL, batch INTEGER NOT NULL, records INTEGER NOT NULL,
    rejected TEXT NOT NULL, example TEXT, lost TEXT NOT NULL, late INTEGER NOT NULL, offsets TEXT NOT NULL, at_ms INTEGER NOT NULL,
    skipped INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, source)
);
"""


class QueryState(StrEnum):
    """Where a view's query is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"  # it failed in a way that passes, and will be started again
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class Definition:
    """A source or a view: the SQL that makes it (secrets masked), and what was worked out from it."""

    name: str
    kind: str
    sql: str
    created_ms: int
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchRecord:
    """What one micro-batch of one view took from one source."""

    view: str
    source: str
    batch: int
    records: int
    rejected: Mapping[str, int]
    example: str | None
    lost: tuple[str, ...]
    late: int  # rows that came after their window had been closed; Spark leaves them out
    offsets: Mapping[str, Any]
    duration_ms: int
    skipped: int = 0  # records without a row that are not bad: header lines, comments, tombstones


@dataclass(frozen=True)
class Totals:
    """What a view has taken from a source in all its life. `records` counts the rejected and the skipped too."""

    view: str
    source: str
    batch: int
    records: int
    rejected: Mapping[str, int]
    example: str | None
    lost: tuple[str, ...]
    late: int
    offsets: Mapping[str, Any]
    at_ms: int
    skipped: int = 0


class Catalog:
    """One connection, usable from any thread of a process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=30, isolation_level=None)
        path.chmod(0o600)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        self._upgrade()

    def _upgrade(self) -> None:
        """A catalog that was made before there was a count of skipped records gets one."""
        if "skipped" not in [row["name"] for row in self._rows("PRAGMA table_info(totals)")]:
            with contextlib.suppress(sqlite3.OperationalError):  # another process was first
                self._connection.execute("ALTER TABLE totals ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    # -- what exists ---------------------------------------------------------------------------------

    def put(self, definition: Definition) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
                (definition.name, definition.kind, definition.sql, definition.created_ms,
                 json.dumps(dict(definition.detail))),
            )  # fmt: skip

    def get(self, name: str) -> Definition | None:
        rows = self._rows("SELECT * FROM objects WHERE name = ?", name)
        return _definition(rows[0]) if rows else None

    def all(self, kind: str) -> list[Definition]:
        return [
            _definition(row) for row in self._rows("SELECT * FROM objects WHERE kind = ? ORDER BY name", kind)
        ]

    def drop(self, name: str) -> None:
        """Forget an object and all that is known of it."""
        with self._transaction() as db:
            db.execute("DELETE FROM objects WHERE name = ?", (name,))
            for table in ("status", "status_history", "batches", "totals"):
                db.execute(f"DELETE FROM {table} WHERE view = ?", (name,))  # noqa: S608

    # -- how it fares --------------------------------------------------------------------------------

    def set_state(self, view: str, state: QueryState, message: str, pid: int) -> None:
        now = _now()
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO status VALUES (?, ?, ?, ?, ?)", (view, state, message, pid, now)
            )
            db.execute(
                "INSERT INTO status_history (view, state, message, at_ms) VALUES (?, ?, ?, ?)",
                (view, state, message, now),
            )
            db.execute(
                "DELETE FROM status_history WHERE view = ? AND id <= (SELECT max(id) FROM status_history) - ?",
                (view, HISTORY_KEPT),
            )

    def state(self, view: str) -> tuple[QueryState, str, int] | None:
        """State, message and process of a view's query; None if it never ran."""
        rows = self._rows("SELECT * FROM status WHERE view = ?", view)
        return (QueryState(rows[0]["state"]), rows[0]["message"], rows[0]["pid"]) if rows else None

    def history(self, view: str) -> list[tuple[int, str, str]]:
        rows = self._rows("SELECT at_ms, state, message FROM status_history WHERE view = ? ORDER BY id", view)
        return [(row["at_ms"], row["state"], row["message"]) for row in rows]

    def record_batch(self, record: BatchRecord) -> None:
        """Add a batch to the totals, once: a batch that was counted before changes nothing."""
        now = _now()
        with self._transaction() as db:
            known = db.execute(
                "SELECT * FROM totals WHERE view = ? AND source = ?", (record.view, record.source)
            ).fetchone()
            if known and known["batch"] >= record.batch:
                return
            rejected = json.loads(known["rejected"]) if known else {}
            for kind, count in record.rejected.items():
                rejected[kind] = rejected.get(kind, 0) + count
            lost = [*(json.loads(known["lost"]) if known else ()), *record.lost]
            db.execute(
                "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (record.view, record.source, record.batch, record.records + (known["records"] if known else 0),
                 json.dumps(rejected), record.example or (known["example"] if known else None),
                 json.dumps(lost), record.late + (known["late"] if known else 0),
                 json.dumps(dict(record.offsets)), now, record.skipped + (known["skipped"] if known else 0)),
            )  # fmt: skip
            db.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "records = records + excluded.records, rejected = rejected + excluded.rejected",
                (record.view, record.batch, now, record.records, sum(record.rejected.values()),
                 record.duration_ms),
            )  # fmt: skip
            db.execute(
                "DELETE FROM batches WHERE view = ? AND batch <= ?",
                (record.view, record.batch - BATCHES_KEPT),
            )

    def totals(self, *, view: str | None = None, source: str | None = None) -> list[Totals]:
        rows = self._rows(
            "SELECT * FROM totals WHERE (?1 IS NULL OR view = ?1) AND (?2 IS NULL OR source = ?2) "
            "ORDER BY view, source",
            view,
            source,
        )
        return [_totals(row) for row in rows]

    def batches(self, view: str, limit: int = 50) -> list[tuple[int, int, int, int, int]]:
        """The newest batches first: (batch, at_ms, records, rejected, duration_ms)."""
        rows = self._rows("SELECT * FROM batches WHERE view = ? ORDER BY batch DESC LIMIT ?", view, limit)
        return [(r["batch"], r["at_ms"], r["records"], r["rejected"], r["duration_ms"]) for r in rows]


def _now() -> int:
    return int(time.time() * 1000)


def _definition(row: sqlite3.Row) -> Definition:
    return Definition(
        row["name"], row["kind"], row["definition"], row["created_ms"], json.loads(row["detail"])
    )


def _totals(row: sqlite3.Row) -> Totals:
    return Totals(
        row["view"], row["source"], row["batch"], row["records"], json.loads(row["rejected"]), row["example"],
        tuple(json.loads(row["lost"])), row["late"], json.loads(row["offsets"]), row["at_ms"],
        row["skipped"],
    )  # fmt: skip
