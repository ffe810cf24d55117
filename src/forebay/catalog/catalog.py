"""The catalog's tables and the questions asked of them.

Any process may read it while another runs a pipeline (SQLite in WAL mode). Definitions are kept as the
SQL that made them, with secrets masked: a secret is never written to disk.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from forebay.connectors.contract import Stretch
from forebay.deadletter.ledger import NEAR
from forebay.home_tables import STEPS, Lost, lose
from forebay.sqlite import migrate, transaction

RATE_WINDOW_MS = 10_000  # errors a second are counted over this long
BATCHES_KEPT = 1_000  # per view: enough to look back some minutes, small enough to read at once
HISTORY_KEPT = 1_000


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
    lost: tuple[Lost, ...]
    late: int  # rows that came after their window had been closed; Spark leaves them out
    offsets: Mapping[str, Any]
    duration_ms: int
    skipped: int = 0  # records without a row that are not bad: header lines, comments, tombstones
    dlq: int = 0  # of the rejected: those that became letters
    rate_limited: int = 0  # of the rejected: those that the rate limit kept out
    limited: tuple[Stretch, ...] = ()  # where these are
    case_mismatches: int = 0  # of the good: with a NULL for a field that differs from its column only in case


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
        self._connection.execute("PRAGMA journal_mode=WAL")
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
            for table in ("status", "status_history", "batches", "totals", "recent_errors", "lost_ranges"):
                db.execute(f"DELETE FROM {table} WHERE view = ?", (name,))  # noqa: S608
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
        since = _now() - RATE_WINDOW_MS
        recent = {
            (row["view"], row["source"]): row["errors"]
            for row in self._rows(
                "SELECT view, source, sum(errors) AS errors FROM recent_errors WHERE at_ms > ? "
                "GROUP BY view, source",
                since,
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
        row["lost_ranges"], row["lost_records"], row["case_mismatches"],
    )  # fmt: skip


def _count(db: sqlite3.Connection, record: BatchRecord, now: int) -> None:
    known = db.execute(
        "SELECT * FROM totals WHERE view = ? AND source = ?", (record.view, record.source)
    ).fetchone()
    if known and known["batch"] >= record.batch:
        return
    rejected = json.loads(known["rejected"]) if known else {}
    for kind, count in record.rejected.items():
        rejected[kind] = rejected.get(kind, 0) + count
    db.execute(
        "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (record.view, record.source, record.batch, record.records + (known["records"] if known else 0),
         json.dumps(rejected), record.example or (known["example"] if known else None),
         record.late + (known["late"] if known else 0),
         json.dumps(dict(record.offsets)), now, record.skipped + (known["skipped"] if known else 0),
         record.dlq + (known["dlq"] if known else 0),
         record.rate_limited + (known["rate_limited"] if known else 0),
         now if record.rejected else known["last_error_ms"] if known else 0,
         known["lost_ranges"] if known else 0, known["lost_records"] if known else 0,
         record.case_mismatches + (known["case_mismatches"] if known else 0)),
    )  # fmt: skip
    lose(db, record.view, record.source, record.lost)
    _note_errors(db, record, now)
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
