"""The local index: SQLite, made from the compacted topics and from nothing else.

Rows and the offsets they came from are written in one SQLite transaction, so a file that is kept goes on where
it stopped, and a process that was killed has neither lost nor doubled anything. A file that may have missed a
tombstone, or that is of topics which were made anew, is begun again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from forebay.blackboard.artifact import decode_fields, micros
from forebay.blackboard.topics import TOMBSTONE_MS, Topics
from forebay.errors import AlreadyRunningError, ArtifactError

log = logging.getLogger("forebay.blackboard")

Partition = tuple[str, int]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifacts (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, produced_by TEXT NOT NULL,
    correlation_id TEXT, visibility TEXT NOT NULL, tags TEXT NOT NULL, created_us INTEGER NOT NULL,
    document BLOB NOT NULL, partition INTEGER NOT NULL, at_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS artifacts_created ON artifacts (created_us, id);
CREATE INDEX IF NOT EXISTS artifacts_type ON artifacts (type, created_us);
CREATE INDEX IF NOT EXISTS artifacts_correlation ON artifacts (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS consumptions (
    key TEXT PRIMARY KEY, artifact_id TEXT NOT NULL, consumer TEXT NOT NULL, run_id TEXT, correlation_id TEXT,
    consumed_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS consumptions_artifact ON consumptions (artifact_id);
CREATE INDEX IF NOT EXISTS consumptions_consumer ON consumptions (consumer);
CREATE TABLE IF NOT EXISTS processed (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS agents (name TEXT PRIMARY KEY, document BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fed (at_ms INTEGER NOT NULL);
"""
_TABLES = ("artifacts", "consumptions", "processed", "agents", "positions", "fed")

# One key is always in one partition, in order; only where partitions were added may it be in two.
_PUT_ARTIFACT = """
INSERT INTO artifacts (id, type, produced_by, correlation_id, visibility, tags, created_us, document, partition, at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    type = excluded.type, produced_by = excluded.produced_by, correlation_id = excluded.correlation_id,
    visibility = excluded.visibility, tags = excluded.tags, created_us = excluded.created_us,
    document = excluded.document, partition = excluded.partition, at_ms = excluded.at_ms
WHERE excluded.partition = artifacts.partition OR excluded.at_ms >= artifacts.at_ms
"""


@dataclass(frozen=True)
class Fed:
    """A record of one of the compacted topics; a value of None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class Index:
    """One writer (the feed) and any number of readers in this process; one process a file."""

    def __init__(self, topics: Topics, path: Path | None = None) -> None:
        self._topics = topics
        self._folder = None if path else tempfile.TemporaryDirectory(prefix="forebay-board-")
        self.path = path or Path(self._folder.name if self._folder else "") / "board.db"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._held = self._hold()
        self._writer = self._connect()
        self._writer.executescript(_SCHEMA)
        self._reader = self._connect()
        self._reading = threading.Lock()
        self.refused = 0  # records that are no artifacts; each was named in the log

    def _hold(self) -> IO[str]:
        handle = self.path.with_name(self.path.name + ".lock").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise AlreadyRunningError(
                f"the index '{self.path}' is in use by another process",
                remedy="give each process an 'index.path' of its own, or none",
            ) from None
        return handle

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        # A file that power loss sets back to an earlier moment is an earlier index, and goes on from there.
        db.execute("PRAGMA synchronous = NORMAL" if self._folder is None else "PRAGMA synchronous = OFF")
        return db

    def close(self) -> None:
        with self._reading:
            self._reader.close()
        self._writer.close()
        self._held.close()
        if self._folder is not None:
            self._folder.cleanup()

    # -- writing, by the feed only -------------------------------------------------------------------

    def positions(self, topic_ids: Mapping[str, str]) -> dict[Partition, int]:
        """Where to go on in each partition; nothing where the file is new or of no use any more."""
        rows = self._writer.execute("SELECT topic, partition, topic_id, next FROM positions").fetchall()
        fed = self._writer.execute("SELECT max(at_ms) FROM fed").fetchone()[0]
        stale = fed is not None and _now_ms() - fed > TOMBSTONE_MS
        if stale or any(topic_ids.get(topic) != id for topic, _, id, _ in rows):
            log.info("the index '%s' is made anew: its topics are not those it was made from", self.path)
            self.clear()
            return {}
        return {(topic, partition): offset for topic, partition, _, offset in rows}

    def clear(self) -> None:
        self._writer.execute("BEGIN")
        for table in _TABLES:
            self._writer.execute(f"DELETE FROM {table}")  # noqa: S608
        self._writer.execute("COMMIT")

    def apply(
        self, records: Iterable[Fed], reached: Mapping[Partition, int], topic_ids: Mapping[str, str]
    ) -> None:
        """Records in log order, and how far that gets each partition: all of it or nothing."""
        db = self._writer
        db.execute("BEGIN IMMEDIATE")
        try:
            for of_artifacts, run in groupby(records, self._is_artifact):
                if of_artifacts:
                    db.executemany(_PUT_ARTIFACT, filter(None, map(self._artifact_row, run)))
                else:
                    for record in run:
                        self._put(db, record)
            db.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
                [(topic, number, topic_ids[topic], offset) for (topic, number), offset in reached.items()],
            )
            db.execute("DELETE FROM fed")
            db.execute("INSERT INTO fed VALUES (?)", (_now_ms(),))
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _is_artifact(self, record: Fed) -> bool:
        return record.topic == self._topics.by_id and record.value is not None

    def _artifact_row(self, record: Fed) -> tuple[Any, ...] | None:
        try:
            assert record.value is not None
            document = decode_fields(record.value)
            return (
                document["id"],
                document.get("canonical_type", document["type"]),
                document["produced_by"],
                document["correlation_id"],
                document["visibility"].get("kind", "Unknown"),
                json.dumps(document["tags"]),
                micros(document["created_at"]),
                record.value,
                record.partition,
                record.timestamp_ms,
            )
        except (ArtifactError, AttributeError, KeyError, TypeError, ValueError) as error:
            self._refuse(record, error)
            return None

    def _put(self, db: sqlite3.Connection, record: Fed) -> None:
        try:
            if record.topic == self._topics.by_id:
                db.execute("DELETE FROM artifacts WHERE id = ?", (record.key.decode(),))
            elif record.topic == self._topics.processed:
                self._put_mark(db, record)
            elif record.topic == self._topics.consumptions:
                self._put_consumption(db, record)
            else:
                self._put_agent(db, record)
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(record, error)

    def _refuse(self, record: Fed, error: Exception) -> None:
        self.refused += 1
        log.warning(
            "%s-%d at offset %d is nothing that a blackboard holds, and is left out: %s",
            record.topic, record.partition, record.offset, error,
        )  # fmt: skip

    def _put_mark(self, db: sqlite3.Connection, record: Fed) -> None:
        if record.value is None:
            db.execute("DELETE FROM processed WHERE key = ?", (record.key.decode(),))
        else:
            db.execute("INSERT OR IGNORE INTO processed VALUES (?)", (record.key.decode(),))

    def _put_consumption(self, db: sqlite3.Connection, record: Fed) -> None:
        key = record.key.decode()
        if record.value is None:
            db.execute("DELETE FROM consumptions WHERE key = ?", (key,))
            return
        found = json.loads(record.value)
        fields = [
            found[name] for name in ("artifact_id", "consumer", "run_id", "correlation_id", "consumed_at")
        ]
        if not all(isinstance(field, str | None) for field in fields):
            raise TypeError("a consumption's fields are texts")
        db.execute("INSERT OR REPLACE INTO consumptions VALUES (?, ?, ?, ?, ?, ?)", (key, *fields))

    def _put_agent(self, db: sqlite3.Connection, record: Fed) -> None:
        name = record.key.decode()
        if record.value is None:
            db.execute("DELETE FROM agents WHERE name = ?", (name,))
        else:
            json.loads(record.value)["agent_name"]
            db.execute("INSERT OR REPLACE INTO agents VALUES (?, ?)", (name, record.value))

    # -- reading, by anybody -------------------------------------------------------------------------

    @contextmanager
    def moment(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        """Several questions to one state of the index."""
        with self._reading:
            self._reader.execute("BEGIN")
            try:
                yield lambda question, values=(): self._reader.execute(question, values).fetchall()
            finally:
                self._reader.execute("COMMIT")

    def rows(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(question, values).fetchall()

    def document(self, artifact_id: str) -> bytes | None:
        found = self.rows("SELECT document FROM artifacts WHERE id = ?", (artifact_id,))
        return found[0][0] if found else None

    def is_processed(self, key: bytes) -> bool:
        return bool(self.rows("SELECT 1 FROM processed WHERE key = ?", (key.decode(),)))


def _now_ms() -> int:
    return int(time.time() * 1000)
