"""The catalog's tables and the questions asked of them.

Any process may read it while another runs a pipeline (SQLite in WAL mode). Definitions are kept as the
SQL that made them, with secrets masked: a secret is never written to disk.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from forebay.connectors.contract import Stretch
from forebay.deadletter.ledger import NEAR
from forebay.home_tables import STEPS, Lost, lose
from forebay.sqlite import migrate, transaction, write_ahead

RATE_WINDOW_MS = 10_000  # errors a second are counted over this long
RATE_S = 60  # what a rate is over
BATCHES_KEPT = 1_000  # per view: enough to look back some minutes, small enough to read at once
LOST_NOTED = 10  # of one batch: the others are in the totals
HISTORY_KEPT = 1_000  # events of each source and view


class QueryState(StrEnum):
    """Where a view's query is in its life."""

    CREATED = "created"  # it is there, and nothing was started yet
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"  # its source is paused; nothing is fetched until it is resumed
    BACKPRESSURED = "backpressured"  # what is in flight is above the high watermark: nothing is fetched
    STALLED = "stalled"  # there is something to read, and no batch has ended for long
    RETRYING = "retrying"  # it failed in a way that passes, and will be started again
    STOPPED = "stopped"
    FAILED = "failed"


class EventKind(StrEnum):
    """What `forebay_catalog.events` tells of."""

    STATE = "state"  # a view's query is in another state
    COMMIT_FAILED = "commit_failed"  # the group's offsets could not be committed; it is tried again
    COMMITTED_AGAIN = "committed_again"  # after failures
    UNREACHABLE = "unreachable"  # the brokers do not answer whoever asks for their health
    REACHABLE = "reachable"  # they do again
    REBALANCE = "rebalance"  # partitions came or went
    REJECTED = "rejected"  # a view met the first record of a kind that does not decode
    LOST = "lost"  # records were gone before they were read


@dataclass(frozen=True)
class Event:
    """Something that happened to a source or a view, as the catalog keeps it."""

    at_ms: int
    name: str
    kind: str
    state: str | None
    message: str


@dataclass(frozen=True)
class BatchTimes:
    """How many batches a view has had, and how long those took that are kept."""

    batches: int
    mean_ms: float
    p99_ms: int
    last_ms: int  # when the last one ended, by the wall clock
    records_per_s: float  # of those that ended in the last minute


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
    lost: tuple[Lost, ...]
    late: int  # rows that came after their window had been closed; Spark leaves them out
    offsets: Mapping[str, Any]
    duration_ms: int
    skipped: int = 0  # records without a row that are not bad: header lines, comments, tombstones
    dlq: int = 0  # of the rejected: those that became letters
    rate_limited: int = 0  # of the rejected: those that the rate limit kept out
    limited: tuple[Stretch, ...] = ()  # where these are
    case_mismatches: int = 0  # of the good: with a NULL for a field that differs from its column only in case
    bytes: int = 0  # of keys and values as they were fetched


@dataclass(frozen=True)
class Totals:
    """What a view has taken from a source in all its life. `records` counts the rejected and the skipped too."""

    view: str
    source: str
    batch: int
    records: int
    rejected: Mapping[str, int]
    example: str | None
    lost: tuple[str, ...]  # the newest ranges that were gone before they were read
    late: int
    offsets: Mapping[str, Any]
    at_ms: int
    skipped: int = 0
    dlq: int = 0
    rate_limited: int = 0
    last_error_ms: int = 0
    lost_ranges: int = 0  # all of them, those that are not named any more, too
    lost_records: int = 0  # offsets in all of them; gaps in the log count
    case_mismatches: int = 0
    bytes: int = 0  # since the version that counts them


@dataclass(frozen=True)
class SourceErrors:
    """How often records of a source did not decode, and what became of them."""

    source_name: str
    errors_total: int
    errors_per_second: float  # over the last ten seconds
    dlq_total: int
    skipped: int  # bad, and left out as ON ERROR = 'skip' says
    rate_limited: int
    by_kind: Mapping[str, int]
    last_error_ms: int  # 0: never
    example: str | None


class Catalog:
    """One connection, usable from any thread of a process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=30, isolation_level=None)
        path.chmod(0o600)
        self._connection.row_factory = sqlite3.Row
        write_ahead(self._connection)
        self._connection.execute("PRAGMA synchronous=FULL")
        migrate(self._connection, STEPS)
        self._upgrade_quotes()

    def _upgrade_quotes(self) -> None:
        """Queries that an earlier version kept are in other quotes."""
        for view in self.all("view"):
            if '"' in view.sql:
                # Before, text could stand in double quotes. What reads SQL is loaded only where there may be some.
                from forebay.sql.stored import in_standard_quotes

                text = in_standard_quotes(view.sql)
                if text != view.sql:
                    self.put(replace(view, sql=text))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """If durable, it outlives a power failure; others can be worked out again, and do not wait for the disk."""
        with self._lock:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            with transaction(self._connection):
                yield self._connection

    def _rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    # -- what exists ---------------------------------------------------------------------------------

    def put(self, definition: Definition) -> None:
        with self._transaction(durable=True) as db:
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
        with self._transaction(durable=True) as db:
            db.execute("DELETE FROM objects WHERE name = ?", (name,))
            for table in ("status", "batches", "totals", "recent_errors", "lost_ranges"):
                db.execute(f"DELETE FROM {table} WHERE view = ?", (name,))  # noqa: S608
            db.execute("DELETE FROM events WHERE name = ?", (name,))
            db.execute("DELETE FROM dead_letter_ledger WHERE source = ?", (name,))

    # -- where sources begin -------------------------------------------------------------------------

    def beginning(self, source: str, identity: str) -> dict[str, Any] | None:
        """Where a source of this name and identity began when it was first read; also of one that was dropped since.

        A source that is dropped and made again begins where it did: its group has offsets by now, and they are ours.
        """
        rows = self._rows(
            "SELECT offsets FROM beginnings WHERE source = ? AND identity = ?", source, identity
        )
        return dict(json.loads(rows[0]["offsets"])) if rows else None

    def set_beginning(self, source: str, identity: str, offsets: Mapping[str, Any]) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO beginnings VALUES (?, ?, ?, ?)",
                (source, identity, json.dumps(dict(offsets)), _now()),
            )

    def forget_beginning(self, source: str) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM beginnings WHERE source = ?", (source,))

    # -- how it fares --------------------------------------------------------------------------------

    def set_state(self, view: str, state: QueryState, message: str, pid: int) -> None:
        now = _now()
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO status VALUES (?, ?, ?, ?, ?)", (view, state, message, pid, now)
            )
            _note(db, now, view, EventKind.STATE, message, state)

    def note(self, name: str, kind: EventKind, message: str) -> None:
        """Keep what happened to a source or a view."""
        with self._transaction() as db:
            _note(db, _now(), name, kind, message)

    def events(self, name: str | None = None) -> list[Event]:
        """In the order in which they happened, whatever the clock said."""
        rows = self._rows(
            "SELECT at_ms, name, kind, state, message FROM events WHERE (?1 IS NULL OR name = ?1) ORDER BY id",
            name,
        )
        return [Event(*row) for row in rows]

    def newest_events(self, limit: int, names: Iterable[str] | None = None) -> list[Event]:
        """At most so many, the newest first, of these names or of all."""
        chosen = None if names is None else sorted(names)
        places = "" if chosen is None else f"WHERE name IN ({', '.join('?' * len(chosen))})"
        rows = self._rows(
            f"SELECT at_ms, name, kind, state, message FROM events {places} ORDER BY id DESC LIMIT ?",  # noqa: S608
            *(chosen or ()),
            limit,
        )
        return [Event(*row) for row in rows]

    def state(self, view: str) -> tuple[QueryState, str, int] | None:
        """State, message and process of a view's query; None if it never ran."""
        rows = self._rows("SELECT * FROM status WHERE view = ?", view)
        return (QueryState(rows[0]["state"]), rows[0]["message"], rows[0]["pid"]) if rows else None

    def history(self, view: str) -> list[tuple[int, str, str]]:
        """When a view's query came into which state, and why."""
        return [
            (each.at_ms, each.state, each.message) for each in self.events(view) if each.state is not None
        ]

    def since(self, view: str) -> int | None:
        """When the view's query came into the state that it is in."""
        rows = self._rows("SELECT since_ms FROM status WHERE view = ?", view)
        return rows[0]["since_ms"] if rows else None

    def record_batch(self, *records: BatchRecord) -> None:
        """Add batches to the totals, each once: a batch that was counted before changes nothing."""
        # What the tasks said of letters and of the rate limit is forgotten after this: nobody else knows of it.
        with self._transaction(durable=any(record.dlq or record.limited for record in records)) as db:
            for record in records:
                _count(db, record, _now())

    def totals(self, *, view: str | None = None, source: str | None = None) -> list[Totals]:
        rows = self._rows(
            "SELECT * FROM totals WHERE (?1 IS NULL OR view = ?1) AND (?2 IS NULL OR source = ?2) "
            "ORDER BY view, source",
            view,
            source,
        )
        lost: dict[tuple[str, str], list[str]] = {}
        for each in self._rows(
            "SELECT * FROM lost_ranges WHERE (?1 IS NULL OR view = ?1) AND (?2 IS NULL OR source = ?2) ORDER BY id",
            view,
            source,
        ):
            named = f"{each['topic']}-{each['partition']} [{each['start']}, {each['end']})"
            lost.setdefault((each["view"], each["source"]), []).append(named)
        return [_totals(row, lost.get((row["view"], row["source"]), ())) for row in rows]

    def source_errors(self) -> list[SourceErrors]:
        """A row a source. Views over one source meet the same records: the one that met most tells."""
        now = _now()
        recent = {
            (row["view"], row["source"]): row["errors"]
            for row in self._rows(
                # A clock that was set back leaves errors in the future: they are not of the last ten seconds.
                "SELECT view, source, sum(errors) AS errors FROM recent_errors WHERE at_ms > ? AND at_ms <= ? "
                "GROUP BY view, source",
                now - RATE_WINDOW_MS,
                now,
            )
        }
        found: dict[str, SourceErrors] = {}
        for each in self.totals():
            errors = sum(each.rejected.values())
            if each.source in found and found[each.source].errors_total >= errors:
                continue
            found[each.source] = SourceErrors(
                each.source, errors, recent.get((each.view, each.source), 0) * 1000 / RATE_WINDOW_MS, each.dlq,
                errors - each.dlq - each.rate_limited, each.rate_limited, each.rejected, each.last_error_ms,
                each.example,
            )  # fmt: skip
        return list(found.values())

    def ledger(self, source: str) -> list[Stretch]:
        """What the rate limit kept out, see `deadletter/ledger.py` for how to read it."""
        rows = self._rows(
            'SELECT topic, partition, start, "end", count, topic_id FROM dead_letter_ledger WHERE source = ? '
            "ORDER BY topic, partition, start",
            source,
        )
        return [Stretch(*row) for row in rows]

    def settle_ledger(self, source: str, stretch: Stretch) -> None:
        """A stretch is recovered: its bad records have letters now."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM dead_letter_ledger WHERE source = ? AND topic = ? AND partition = ? AND start >= ? "
                'AND "end" <= ? AND topic_id = ?',
                (source, stretch.topic, stretch.partition, stretch.start, stretch.end, stretch.topic_id),
            )

    def batches(self, view: str, limit: int = 50) -> list[tuple[int, int, int, int, int]]:
        """The newest batches first: (batch, at_ms, records, rejected, duration_ms)."""
        rows = self._rows("SELECT * FROM batches WHERE view = ? ORDER BY batch DESC LIMIT ?", view, limit)
        return [(r["batch"], r["at_ms"], r["records"], r["rejected"], r["duration_ms"]) for r in rows]

    def newest_batches(self, view: str, limit: int) -> list[tuple[int, int, int, int, int, int]]:
        """The newest first: (batch, at_ms, records, bytes, rejected, duration_ms)."""
        rows = self._rows(
            "SELECT batch, at_ms, records, bytes, rejected, duration_ms FROM batches WHERE view = ? "
            "ORDER BY batch DESC LIMIT ?",
            view,
            limit,
        )
        return [tuple(row) for row in rows]

    def all_batches(self) -> list[tuple[str, int, int, int, int, int, int]]:
        """Of all views, in order: (view, batch, at_ms, records, bytes, rejected, duration_ms)."""
        rows = self._rows(
            "SELECT view, batch, at_ms, records, bytes, rejected, duration_ms FROM batches ORDER BY view, batch"
        )
        return [tuple(row) for row in rows]

    def batch_times(self, view: str) -> BatchTimes | None:
        """None before the first batch. Those that were counted after a crash have no duration, and are left out."""
        rows = self._rows(
            "SELECT max(batch) + 1 AS batches, max(at_ms) AS last_ms FROM batches WHERE view = ?", view
        )
        if rows[0]["batches"] is None:
            return None
        took = [
            row["duration_ms"]
            for row in self._rows(
                "SELECT duration_ms FROM batches WHERE view = ? AND duration_ms > 0 ORDER BY duration_ms",
                view,
            )
        ]
        mean = sum(took) / len(took) if took else 0.0
        p99 = took[-(-len(took) * 99 // 100) - 1] if took else 0  # the nearest rank
        [lately] = self._rows(
            "SELECT total(records) AS records FROM batches WHERE view = ? AND at_ms > ?",
            view,
            _now() - RATE_S * 1000,
        )
        rate = float(lately["records"]) / RATE_S
        return BatchTimes(rows[0]["batches"], mean, p99, rows[0]["last_ms"], rate)


def _now() -> int:
    return int(time.time() * 1000)


def _definition(row: sqlite3.Row) -> Definition:
    return Definition(
        row["name"], row["kind"], row["definition"], row["created_ms"], json.loads(row["detail"])
    )


def _totals(row: sqlite3.Row, lost: Sequence[str]) -> Totals:
    return Totals(
        row["view"], row["source"], row["batch"], row["records"], json.loads(row["rejected"]), row["example"],
        tuple(lost), row["late"], json.loads(row["offsets"]), row["at_ms"],
        row["skipped"], row["dlq"], row["rate_limited"], row["last_error_ms"],
        row["lost_ranges"], row["lost_records"], row["case_mismatches"], row["bytes"],
    )  # fmt: skip


def _count(db: sqlite3.Connection, record: BatchRecord, now: int) -> None:
    known = db.execute(
        "SELECT * FROM totals WHERE view = ? AND source = ?", (record.view, record.source)
    ).fetchone()
    if known and known["batch"] >= record.batch:
        return
    rejected = json.loads(known["rejected"]) if known else {}
    for kind in record.rejected.keys() - rejected.keys():
        _note(
            db, now, record.view, EventKind.REJECTED, f"{kind} in source '{record.source}': {record.example}"
        )
    for topic, partition, start, end in record.lost[:LOST_NOTED]:
        gone = f"{topic}-{partition} [{start}, {end}) of source '{record.source}' was gone before it was read"
        _note(db, now, record.view, EventKind.LOST, gone)
    for kind, count in record.rejected.items():
        rejected[kind] = rejected.get(kind, 0) + count
    db.execute(
        "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (record.view, record.source, record.batch, record.records + (known["records"] if known else 0),
         json.dumps(rejected), record.example or (known["example"] if known else None),
         record.late + (known["late"] if known else 0),
         json.dumps(dict(record.offsets)), now, record.skipped + (known["skipped"] if known else 0),
         record.dlq + (known["dlq"] if known else 0),
         record.rate_limited + (known["rate_limited"] if known else 0),
         now if record.rejected else known["last_error_ms"] if known else 0,
         known["lost_ranges"] if known else 0, known["lost_records"] if known else 0,
         record.case_mismatches + (known["case_mismatches"] if known else 0),
         record.bytes + (known["bytes"] if known else 0)),
    )  # fmt: skip
    lose(db, record.view, record.source, record.lost)
    _note_errors(db, record, now)
    db.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "records = records + excluded.records, rejected = rejected + excluded.rejected, "
        "bytes = bytes + excluded.bytes",
        (record.view, record.batch, now, record.records, sum(record.rejected.values()),
         record.duration_ms, record.bytes),
    )  # fmt: skip
    db.execute(
        "DELETE FROM batches WHERE view = ? AND batch <= ?",
        (record.view, record.batch - BATCHES_KEPT),
    )


def _note(
    db: sqlite3.Connection, now: int, name: str, kind: EventKind, message: str, state: str | None = None
) -> None:
    db.execute(
        "INSERT INTO events (at_ms, name, kind, state, message) VALUES (?, ?, ?, ?, ?)",
        (now, name, kind, state, message),
    )
    db.execute(
        "DELETE FROM events WHERE name = ?1 AND id <= "
        "(SELECT id FROM events WHERE name = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (name, HISTORY_KEPT),
    )


def _note_errors(db: sqlite3.Connection, record: BatchRecord, now: int) -> None:
    errors = sum(record.rejected.values())
    if errors:
        db.execute("INSERT INTO recent_errors VALUES (?, ?, ?, ?)", (record.view, record.source, now, errors))
        db.execute("DELETE FROM recent_errors WHERE at_ms < ?", (now - RATE_WINDOW_MS,))
    for stretch in record.limited:
        _enter(db, record.source, stretch, now)


def _enter(db: sqlite3.Connection, source: str, new: Stretch, now: int) -> None:
    """Into the ledger; what lies near is one stretch with it. Another view's is the same records again."""
    near = db.execute(
        'SELECT topic, partition, start, "end", count, topic_id FROM dead_letter_ledger WHERE source = ? AND topic = ? '
        'AND partition = ? AND start < ? AND "end" > ? AND topic_id = ?',
        (source, new.topic, new.partition, new.end + NEAR, new.start - NEAR, new.topic_id),
    ).fetchall()
    for row in near:
        known = Stretch(*row)
        overlap = known.start < new.end and new.start < known.end
        bad = max(known.bad, new.bad) if overlap else known.bad + new.bad
        new = new._replace(start=min(known.start, new.start), end=max(known.end, new.end), bad=bad)
        db.execute(
            "DELETE FROM dead_letter_ledger WHERE source = ? AND topic = ? AND partition = ? AND start = ? "
            "AND topic_id = ?",
            (source, known.topic, known.partition, known.start, known.topic_id),
        )
    db.execute("INSERT INTO dead_letter_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (source, *new, now))
