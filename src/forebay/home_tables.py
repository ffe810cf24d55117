"""The tables of a home's `catalog.db`: of the catalog, and of what became of letters (`deadletter/outcomes.py`).

One list of steps for both, because a file has one version.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable

from forebay.sqlite import Step, adopt, columns

LOST_KEPT = 100  # newest ranges of a view and source; all are counted

Lost = tuple[str, int, int, int]
"""Topic, partition, [start, end): gone before they were read."""

_TABLES_1 = """
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
    rejected TEXT NOT NULL, example TEXT, late INTEGER NOT NULL DEFAULT 0, offsets TEXT NOT NULL, at_ms INTEGER NOT NULL,
    skipped INTEGER NOT NULL DEFAULT 0, dlq INTEGER NOT NULL DEFAULT 0, rate_limited INTEGER NOT NULL DEFAULT 0,
    last_error_ms INTEGER NOT NULL DEFAULT 0, lost_ranges INTEGER NOT NULL DEFAULT 0,
    lost_records INTEGER NOT NULL DEFAULT 0, case_mismatches INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, source)
);
CREATE TABLE IF NOT EXISTS lost_ranges (
    id INTEGER PRIMARY KEY, view TEXT NOT NULL, source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    start INTEGER NOT NULL, "end" INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS lost_by_view ON lost_ranges (view, source);
CREATE TABLE IF NOT EXISTS recent_errors (
    view TEXT NOT NULL, source TEXT NOT NULL, at_ms INTEGER NOT NULL, errors INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS beginnings (
    source TEXT PRIMARY KEY, identity TEXT NOT NULL, offsets TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS dead_letter_ledger (
    source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
    "end" INTEGER NOT NULL, count INTEGER NOT NULL, topic_id TEXT NOT NULL DEFAULT '',
    at_ms INTEGER NOT NULL, PRIMARY KEY (source, topic, partition, start, topic_id)
);
CREATE TABLE IF NOT EXISTS dead_letter_outcomes (
    source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    topic_id TEXT NOT NULL DEFAULT '', mark TEXT NOT NULL DEFAULT '', state TEXT NOT NULL, at_ms INTEGER NOT NULL, reason TEXT,
    replay_id TEXT, target_topic TEXT, target_partition INTEGER, target_offset INTEGER,
    PRIMARY KEY (source, topic, partition, "offset", topic_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS dead_letter_replays ON dead_letter_outcomes (replay_id);
CREATE INDEX IF NOT EXISTS dead_letter_states ON dead_letter_outcomes (source, state);
CREATE TABLE IF NOT EXISTS dead_letter_intents (
    replay_id TEXT PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL, since TEXT NOT NULL, letters TEXT NOT NULL,
    target_id TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS dead_letter_replayers (source TEXT PRIMARY KEY, transactional_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS dead_letter_watches (
    source TEXT NOT NULL, place TEXT NOT NULL, positions TEXT NOT NULL, PRIMARY KEY (source, place)
);
"""


def _counted(db: sqlite3.Connection) -> None:
    """All that there is in version 1, also from files of before versions were counted."""
    lost = _lost_as_texts(db)
    adopt(db, _TABLES_1)
    for view, source, span in lost:
        lose(db, view, source, [span])
    _complete_intents(db)


def _bytes(db: sqlite3.Connection) -> None:
    """Version 2: how many bytes were read."""
    for table in ("totals", "batches"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0")


def _events(db: sqlite3.Connection) -> None:
    """Version 3: one history of all that happens, states among them. `name` is of a source or a view."""
    db.execute(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, "
        "state TEXT, message TEXT NOT NULL)"
    )
    db.execute("CREATE INDEX events_by_name ON events (name, id)")
    db.execute(
        "INSERT INTO events (at_ms, name, kind, state, message) "
        "SELECT at_ms, view, 'state', state, message FROM status_history ORDER BY id"
    )
    db.execute("DROP TABLE status_history")


def _letter_history(db: sqlite3.Connection) -> None:
    """Version 4: all that became of a letter, and by whom. Triggers write it, so that an older version does, too.

    The index of letters follows it by its number. A letter that is reopened has no outcome any more: it is open.
    """
    db.execute(
        "CREATE TABLE dead_letter_history (id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, topic TEXT NOT NULL, "
        'partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, topic_id TEXT NOT NULL, mark TEXT NOT NULL, '
        "state TEXT NOT NULL, at_ms INTEGER NOT NULL, reason TEXT, replay_id TEXT, target_topic TEXT, "
        "target_partition INTEGER, target_offset INTEGER, actor TEXT)"
    )
    db.execute(
        'CREATE INDEX dead_letter_history_of ON dead_letter_history (source, topic, partition, "offset")'
    )
    names = (
        'source, topic, partition, "offset", topic_id, mark, state, at_ms, reason, replay_id, target_topic, '
        "target_partition, target_offset"
    )
    new = ", ".join(f"NEW.{name.strip()}" for name in names.split(","))
    into = f"INSERT INTO dead_letter_history ({names})"  # our own names
    db.execute(f"{into} SELECT {names} FROM dead_letter_outcomes ORDER BY at_ms")  # noqa: S608
    for event in ("INSERT", "UPDATE"):
        db.execute(
            f"CREATE TRIGGER dead_letter_{event.lower()} AFTER {event} ON dead_letter_outcomes "
            f"BEGIN {into} VALUES ({new}); END"
        )
    db.execute(
        "CREATE TRIGGER dead_letter_delete AFTER DELETE ON dead_letter_outcomes BEGIN "
        f"{into} VALUES (OLD.source, OLD.topic, OLD.partition, OLD.\"offset\", OLD.topic_id, OLD.mark, 'open', "
        "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), NULL, NULL, NULL, NULL, NULL); END"
    )


STEPS: tuple[Step, ...] = (_counted, _bytes, _events, _letter_history)


def lose(db: sqlite3.Connection, view: str, source: str, spans: Iterable[Lost]) -> None:
    """Count ranges that are gone, and name the newest of them. One that goes on where another ends is one with it."""
    for topic, partition, start, end in spans:
        longer = db.execute(
            'UPDATE lost_ranges SET "end" = ? WHERE view = ? AND source = ? AND topic = ? AND partition = ? AND "end" = ?',
            (end, view, source, topic, partition, start),
        ).rowcount
        if not longer:
            db.execute(
                "INSERT INTO lost_ranges VALUES (NULL, ?, ?, ?, ?, ?, ?)",
                (view, source, topic, partition, start, end),
            )
            db.execute(
                "DELETE FROM lost_ranges WHERE view = ?1 AND source = ?2 AND id <= "
                "(SELECT id FROM lost_ranges WHERE view = ?1 AND source = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
                (view, source, LOST_KEPT),
            )
        db.execute(
            "UPDATE totals SET lost_ranges = lost_ranges + ?, lost_records = lost_records + ? "
            "WHERE view = ? AND source = ?",
            (0 if longer else 1, end - start, view, source),
        )


def _lost_as_texts(db: sqlite3.Connection) -> list[tuple[str, str, Lost]]:
    """View, source and range of what an older version kept as texts, all of them in one column."""
    if "lost" not in columns(db, "totals"):
        return []
    return [
        (view, source, (found[1], int(found[2]), int(found[3]), int(found[4])))
        for view, source, texts in db.execute("SELECT view, source, lost FROM totals").fetchall()
        for text in json.loads(texts)
        if (found := re.fullmatch(r"(.+)-(\d+) \[(\d+), (\d+)\)", text))
    ]


def _complete_intents(db: sqlite3.Connection) -> None:
    """The first version kept letters without their marks, as three fields each."""
    for replay_id, text in db.execute("SELECT replay_id, letters FROM dead_letter_intents").fetchall():
        letters = json.loads(text)
        if any(len(letter) == 3 for letter in letters):
            complete = [[*letter, ""] if len(letter) == 3 else letter for letter in letters]
            db.execute(
                "UPDATE dead_letter_intents SET letters = ? WHERE replay_id = ?",
                (json.dumps(complete), replay_id),
            )
