"""Tables in a SQLite file, and files that older versions made. `PRAGMA user_version` is how many steps a file has behind it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Step = Callable[[sqlite3.Connection], None]
"""What brings a file of one version to the next; runs inside a transaction."""


WAL_S = 30.0  # as long as other statements wait for a lock


def write_ahead(db: sqlite3.Connection) -> None:
    """Let others read while one writes. SQLite's own time-out does not cover this, though a new file may be locked."""
    deadline = time.monotonic() + WAL_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def migrate(db: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Take the steps that a file lacks, all in one transaction. A file of a newer version is left as it is.

    Steps are only ever added, at the end: one that was released has been taken by files that exist.
    """
    if version(db) >= len(steps):
        return
    with transaction(db):
        for step in steps[version(db) :]:  # asked again: another process may have been first
            step(db)
        _set_version(db, len(steps))


def rebuild(db: sqlite3.Connection, number: int, script: str) -> None:
    """For a file that is made from something else: one of any other version is emptied."""
    if version(db) == number:
        return
    with transaction(db):
        for table in _tables(db):
            db.execute(f"DROP TABLE {table}")
        _run(db, script)
        _set_version(db, number)


def adopt(db: sqlite3.Connection, script: str) -> None:
    """Make the tables of a script of CREATE statements; those of files from before versions were counted get its columns.

    A column that is new has its default in the rows that are there, so it needs one.
    """
    for table, wanted in _wanted(script).items():
        known = columns(db, table)
        if not known or known == wanted:
            continue
        # Not ALTER TABLE … ADD COLUMN: the new one may be part of the key.
        both = ", ".join(f'"{name}"' for name in wanted if name in known)
        db.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
        db.execute(next(each for each in _statements(script) if f"TABLE IF NOT EXISTS {table} (" in each))
        db.execute(f"INSERT INTO {table} ({both}) SELECT {both} FROM {table}_before")  # noqa: S608 - our own names
        db.execute(f"DROP TABLE {table}_before")
    _run(db, script)  # also the indexes, which went with the old tables


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. For connections with `isolation_level=None`."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Of a table; none if there is no such table."""
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def _set_version(db: sqlite3.Connection, number: int) -> None:
    db.execute(f"PRAGMA user_version = {number}")


def _run(db: sqlite3.Connection, script: str) -> None:
    """Not `executescript`, which ends the transaction first."""
    for each in _statements(script):
        db.execute(each)


def _statements(script: str) -> list[str]:
    return [each for each in script.split(";") if each.strip()]


def _tables(db: sqlite3.Connection) -> list[str]:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [row[0] for row in found.fetchall()]


def _wanted(script: str) -> dict[str, list[str]]:
    """The tables of a script, each with its columns."""
    empty = sqlite3.connect(":memory:")
    try:
        empty.executescript(script)
        return {name: columns(empty, name) for name in _tables(empty)}
    finally:
        empty.close()
