"""An hour of samples of every source, in `history.db` of the home: a dashboard that is started again has them.

They are a picture for people and nothing else reads them, so they do not wait for the disk, and an old or damaged file is made anew.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import locks
from forebay.sqlite import rebuild, write_ahead
from forebay.web.model import HistoryPoint

if TYPE_CHECKING:
    from filelock import BaseFileLock

KEPT_MS = 3_900_000  # an hour, and a little more for the left edge of a chart
MOST_ROWS = 500_000  # of all sources together: some 60 MB
PARTITIONS = 8  # of a source: those furthest behind, which is as many lines as a chart can show
PARTITIONS_EVERY_MS = 10_000
PERCENTILES_MS = 60_000  # the batches of so long make a percentile
MOST_POINTS = 400  # that a chart shows
VERSION = 2
_TABLES = """
CREATE TABLE samples (
    source TEXT NOT NULL, at_ms INTEGER NOT NULL, records REAL, bytes REAL, lag INTEGER, lag_s REAL, batch_ms INTEGER,
    errors TEXT NOT NULL, partitions TEXT NOT NULL, PRIMARY KEY (source, at_ms)
) WITHOUT ROWID;
CREATE INDEX by_time ON samples (at_ms)
"""


@dataclass(frozen=True)
class SourceSample:
    """Of a source at a moment: rates since the sample before, and new errors by kind."""

    source: str
    at_ms: int
    records_per_s: float | None
    bytes_per_s: float | None
    lag: int | None
    lag_s: float | None
    batch_ms: int | None
    errors: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)  # lag; of few of them, and not every time


class History:
    """One process writes: the first that has the lock. All others only read."""

    def __init__(self, home: Path) -> None:
        self._path = home / "history.db"
        self._lock = threading.Lock()
        self._held: BaseFileLock | None = None
        self._db: sqlite3.Connection | None = None

    def add(self, samples: Iterable[SourceSample]) -> bool:
        """False where another process writes them."""
        with self._lock:
            if self._held is None:
                self._held = locks.take(self._path.with_suffix(".lock"))
            if self._held is None:
                return False
            rows = [
                (each.source, each.at_ms, each.records_per_s, each.bytes_per_s, each.lag, each.lag_s, each.batch_ms,
                 _text(each.errors), _text(each.partitions))
                for each in samples
            ]  # fmt: skip
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                if rows:
                    self._prune(db, rows[-1][1])
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
            return True

    def _prune(self, db: sqlite3.Connection, now_ms: int) -> None:
        db.execute("DELETE FROM samples WHERE at_ms < ?", (now_ms - KEPT_MS,))
        # Counting takes a walk over the index: only where that many could be there at all.
        if db.execute("SELECT count(*) FROM samples").fetchone()[0] > MOST_ROWS:
            db.execute(
                "DELETE FROM samples WHERE at_ms <= (SELECT at_ms FROM samples ORDER BY at_ms LIMIT 1 OFFSET ?)",
                (MOST_ROWS // 10,),
            )

    def points(self, source: str, since_ms: int) -> list[HistoryPoint]:
        """The oldest first; more than a chart can show are joined, with the highest lag of those that were."""
        with self._lock:
            if self._db is None and not self._path.exists():
                return []
            rows = self._open().execute(
                "SELECT at_ms, records, bytes, lag, lag_s, batch_ms, errors, partitions FROM samples "
                "WHERE source = ? AND at_ms >= ? ORDER BY at_ms",
                (source, since_ms),
            )
            found = [
                HistoryPoint(
                    row[0], row[1], row[2], row[3], row[4], row[5],
                    json.loads(row[6] or "{}"), partitions=json.loads(row[7] or "{}"),
                )
                for row in rows.fetchall()
            ]  # fmt: skip
        return thinned(with_percentiles(found))

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None
            if self._held is not None:
                self._held.release()
                self._held = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            try:
                self._db = self._connect()
            except sqlite3.DatabaseError:
                if self._held is None:
                    raise
                for suffix in ("", "-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        Path(f"{self._path}{suffix}").unlink()
                self._db = self._connect()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
        self._path.chmod(0o600)
        write_ahead(db)
        db.execute("PRAGMA synchronous=OFF")
        rebuild(db, VERSION, _TABLES)
        return db


def _text(counts: Mapping[str, int]) -> str:
    return json.dumps(counts) if counts else ""


def with_percentiles(points: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """With the percentiles of the batches that were seen in the minute before each point that has one."""
    found: list[HistoryPoint] = []
    seen: deque[tuple[int, int]] = deque()
    for each in points:
        if each.batch_ms is None:
            found.append(each)
            continue
        seen.append((each.at_ms, each.batch_ms))
        while seen[0][0] <= each.at_ms - PERCENTILES_MS:
            seen.popleft()
        took = sorted(ms for _, ms in seen)
        p50, p99 = took[(len(took) - 1) // 2], took[-(-len(took) * 99 // 100) - 1]
        found.append(replace(each, batch_ms_p50=p50, batch_ms_p99=p99))
    return found


def thinned(points: Sequence[HistoryPoint], most: int = MOST_POINTS) -> list[HistoryPoint]:
    """At most so many: neighbours become one point, with their mean rate, their worst lag and all of their errors."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // most)
    return [_joined(points[at : at + size]) for at in range(0, len(points), size)]


def _joined(points: Sequence[HistoryPoint]) -> HistoryPoint:
    errors: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for each in points:
        for kind, count in each.errors.items():
            errors[kind] = errors.get(kind, 0) + count
        for name, lag in each.partitions.items():
            partitions[name] = max(lag, partitions.get(name, 0))
    return HistoryPoint(
        points[-1].at_ms,
        _mean([each.records_per_s for each in points]),
        _mean([each.bytes_per_s for each in points]),
        _most([each.lag for each in points]),
        max((each.lag_s for each in points if each.lag_s is not None), default=None),
        _most([each.batch_ms for each in points]),
        errors,
        _most([each.batch_ms_p50 for each in points]),
        _most([each.batch_ms_p99 for each in points]),
        partitions,
    )


def _most(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
