"""The local index: SQLite, made from the compacted topics and from nothing else.

Rows and the offsets they came from are written in one SQLite transaction, so a file that is kept goes on where
it stopped, and a process that was killed has neither lost nor doubled anything. What is of a topic that was made
anew or has lost records is begun again, and all of it if it may have missed a tombstone.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import locks
from forebay.blackboard.artifact import decode_fields, micros
from forebay.blackboard.board_topics import TOMBSTONE_MS, BoardTopics
from forebay.blackboard.records import AGENT, CONSUMPTION, MARK, consumption_key
from forebay.blackboard.shapes import parse_quickly
from forebay.blackboard.stats import Refusals
from forebay.errors import AlreadyRunningError, ArtifactError
from forebay.kafka.partitions import TopicPartition
from forebay.sqlite import rebuild, transaction

if TYPE_CHECKING:
    from filelock import BaseFileLock

log = logging.getLogger("forebay.blackboard")

PRUNE_S = 60.0
PRUNED = 5_000  # rows of a table at a time: readers wait meanwhile
FORM = 3  # of the tables and of what may be in them: a file of another form is begun again
_SCHEMA = """
CREATE TABLE artifacts (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, produced_by TEXT NOT NULL,
    correlation_id TEXT, visibility TEXT NOT NULL, tags TEXT NOT NULL, created_us INTEGER NOT NULL,
    document BLOB NOT NULL, partition INTEGER NOT NULL, at_offset INTEGER NOT NULL, at_ms INTEGER NOT NULL
);
CREATE INDEX artifacts_created ON artifacts (created_us, id);
CREATE INDEX artifacts_type ON artifacts (type, created_us);
CREATE INDEX artifacts_correlation ON artifacts (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE consumptions (
    key TEXT PRIMARY KEY, artifact_id TEXT NOT NULL, consumer TEXT NOT NULL, run_id TEXT, correlation_id TEXT,
    consumed_at TEXT NOT NULL, at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX consumptions_artifact ON consumptions (artifact_id);
CREATE INDEX consumptions_consumer ON consumptions (consumer);
CREATE INDEX consumptions_age ON consumptions (at_ms);
CREATE TABLE processed (key TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX processed_age ON processed (at_ms);
CREATE TABLE agents (name TEXT PRIMARY KEY, document BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE fed (at_ms INTEGER NOT NULL);
"""

# One key is always in one partition, in order; only where partitions were added may it be in two.
_PUT_ARTIFACT = """
INSERT INTO artifacts (
    id, type, produced_by, correlation_id, visibility, tags, created_us, document, partition, at_offset, at_ms
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    type = excluded.type, produced_by = excluded.produced_by, correlation_id = excluded.correlation_id,
    visibility = excluded.visibility, tags = excluded.tags, created_us = excluded.created_us,
    document = excluded.document, partition = excluded.partition, at_offset = excluded.at_offset,
    at_ms = excluded.at_ms
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

    def __init__(
        self,
        topics: BoardTopics,
        path: Path | None = None,
        refusals: Refusals | None = None,
        marks_kept_ms: int = -1,
    ) -> None:
        """`marks_kept_ms`: marks and consumptions that are older are let go, as in their topics; -1: none."""
        self._topics = topics
        self._marks_kept_ms = marks_kept_ms
        self._next_prune = 0.0
        self._refusals = refusals or Refusals()
        self._folder = None if path else tempfile.TemporaryDirectory(prefix="forebay-board-")
        self.path = path or Path(self._folder.name if self._folder else "") / "board.db"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._held = self._hold()
        self._writer = self._connect()
        rebuild(self._writer, FORM, _SCHEMA)
        self._reader = self._connect()
        self._reading = threading.Lock()
        # Looks at one row, which take microseconds, never wait for a search: they are made in event loops.
        self._glancer = self._connect()
        self._glancing = threading.Lock()

    def _hold(self) -> BaseFileLock:
        held = locks.take(self.path.with_name(self.path.name + ".lock"))
        if held is None:
            raise AlreadyRunningError(
                f"the index '{self.path}' is in use by another process",
                remedy="give each process an 'index.path' of its own, or none",
            )
        return held

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        # A file that power loss sets back to an earlier moment is an earlier index, and goes on from there.
        db.execute("PRAGMA synchronous = NORMAL" if self._folder is None else "PRAGMA synchronous = OFF")
        return db

    def close(self) -> None:
        with self._reading:
            self._reader.close()
        with self._glancing:
            self._glancer.close()
        self._writer.close()
        self._held.release()
        if self._folder is not None:
            self._folder.cleanup()

    # -- writing, by the feed only -------------------------------------------------------------------

    def positions(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Where to go on in each partition; nothing where the file is new or of no use any more."""
        rows = self._writer.execute("SELECT topic, partition, topic_id, next FROM positions").fetchall()
        fed = self._writer.execute("SELECT max(at_ms) FROM fed").fetchone()[0]
        stale = fed is not None and _now_ms() - fed > TOMBSTONE_MS
        others = {topic for topic, _, id, _ in rows if topic_ids.get(topic) != id}
        if stale or others - set(topic_ids):
            log.info("the index '%s' is made anew: it may have missed what was deleted meanwhile", self.path)
            self.forget(self._topics.indexed)
            return {}
        if others:
            self.forget(others)
        return {(topic, number): offset for topic, number, _, offset in rows if topic not in others}

    def forget(self, topics: Collection[str]) -> None:
        """All that came from these topics: it is read again."""
        log.info("the index of %s is made anew", ", ".join(sorted(topics)))
        with transaction(self._writer):
            for topic, table in self._tables.items():
                if topic in topics:
                    self._writer.execute(f"DELETE FROM {table}")  # noqa: S608
            # Those of topics that have other names now go, too.
            kept = set(self._topics.indexed) - set(topics)
            marks = ", ".join("?" * len(kept))
            self._writer.execute(f"DELETE FROM positions WHERE topic NOT IN ({marks})", [*kept])  # noqa: S608
            if not kept:
                self._writer.execute("DELETE FROM fed")
        self._refusals.forget(topics)

    @property
    def _tables(self) -> dict[str, str]:
        """By topic, what is made from it."""
        topics = self._topics
        return {
            topics.by_id: "artifacts",
            topics.processed: "processed",
            topics.consumptions: "consumptions",
            topics.agents: "agents",
        }

    def apply(
        self, records: Iterable[Fed], reached: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
    ) -> None:
        """Records in log order, and how far that gets each partition: all of it or nothing."""
        db = self._writer
        with transaction(db):
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
        self._prune()

    def _prune(self) -> None:
        """What is too old, some at a time: the brokers remove whole segments, and say nothing of it."""
        if self._marks_kept_ms < 0 or time.monotonic() < self._next_prune:
            return
        left = 0
        with transaction(self._writer):
            for table in ("processed", "consumptions"):
                old = f"SELECT key FROM {table} WHERE at_ms < ? ORDER BY at_ms LIMIT {PRUNED}"  # noqa: S608
                question = f"DELETE FROM {table} WHERE key IN ({old})"  # noqa: S608
                left += self._writer.execute(question, (_now_ms() - self._marks_kept_ms,)).rowcount == PRUNED
        self._next_prune = time.monotonic() + (0 if left else PRUNE_S)

    def _is_artifact(self, record: Fed) -> bool:
        return record.topic == self._topics.by_id and record.value is not None

    def _artifact_row(self, record: Fed) -> tuple[Any, ...] | None:
        try:
            document = decode_fields(record.value)
            _check_key(record, document["id"])
        except ArtifactError as error:
            self._refuse(record, error)
            return None
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
            record.offset,
            record.timestamp_ms,
        )

    def _put(self, db: sqlite3.Connection, record: Fed) -> None:
        """Any record but an artifact. What is foreign is found before SQLite sees any of it."""
        try:
            question, values = self._change(record, _key_of(record))
        except ArtifactError as error:
            self._refuse(record, error)
        else:
            db.execute(question, values)

    def _change(self, record: Fed, key: str) -> tuple[str, tuple[Any, ...]]:
        if record.value is None:
            table = self._tables[record.topic]
            column = {"artifacts": "id", "agents": "name"}.get(table, "key")
            return f"DELETE FROM {table} WHERE {column} = ?", (key,)  # noqa: S608
        if record.topic == self._topics.processed:
            MARK.checked(parse_quickly(record.value))
            return "INSERT OR REPLACE INTO processed VALUES (?, ?)", (key, record.timestamp_ms)
        if record.topic == self._topics.consumptions:
            found = CONSUMPTION.checked(parse_quickly(record.value))
            _check_key(record, consumption_key(found).decode())
            names = ("artifact_id", "consumer", "run_id", "correlation_id", "consumed_at")
            values = (key, *(found[name] for name in names), record.timestamp_ms)
            return "INSERT OR REPLACE INTO consumptions VALUES (?, ?, ?, ?, ?, ?, ?)", values
        found = AGENT.checked(parse_quickly(record.value))
        _check_key(record, found["agent_name"])
        return "INSERT OR REPLACE INTO agents VALUES (?, ?)", (key, record.value)

    def _refuse(self, record: Fed, error: ArtifactError) -> None:
        self._refusals.add((record.topic, record.partition, record.offset), error)

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

    def document(self, artifact_id: str) -> tuple[bytes, int, int] | None:
        """The newest version, and its partition and offset. Never waits, as `processed`."""
        question = "SELECT document, partition, at_offset FROM artifacts WHERE id = ?"
        with self._glancing:
            found: tuple[bytes, int, int] | None = self._glancer.execute(question, (artifact_id,)).fetchone()
        return found

    def processed(self, keys: Collection[bytes]) -> set[bytes]:
        """Which of these marks there are; a few at a time."""
        question = f"SELECT key FROM processed WHERE key IN ({', '.join('?' * len(keys))})"  # noqa: S608
        with self._glancing:
            found = self._glancer.execute(question, [key.decode() for key in keys]).fetchall()
        return {key.encode() for (key,) in found}


def _key_of(record: Fed) -> str:
    try:
        return record.key.decode()
    except UnicodeDecodeError as error:
        raise ArtifactError(f"a record's key is not UTF-8 at byte {error.start}") from None


def _check_key(record: Fed, expected: str) -> None:
    """What is under another key than its own would not be replaced by its next version, nor deleted."""
    if _key_of(record) != expected:
        raise ArtifactError("a record's key is not that of what it holds")


def _now_ms() -> int:
    return int(time.time() * 1000)
