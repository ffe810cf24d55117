"""Tables in a SQLite file: made where they are missing, and made anew where an older version left out columns."""

from __future__ import annotations

import sqlite3


def is_current(db: sqlite3.Connection, script: str) -> bool:
    """Whether all tables of a script of CREATE statements are there, with all of their columns."""
    return all(set(wanted) <= set(_columns(db, table)) for table, wanted in _wanted(script).items())


def prepare(db: sqlite3.Connection, script: str) -> None:
    """Make them so, inside the caller's transaction. A column that is new has its default in the rows that are there."""
    statements = [each for each in script.split(";") if each.strip()]
    for table, wanted in _wanted(script).items():
        known = _columns(db, table)
        if not known or set(wanted) <= set(known):
            continue
        # Not ALTER TABLE … ADD COLUMN: the new one may be part of the key.
        both = ", ".join(f'"{name}"' for name in wanted if name in known)
        db.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
        db.execute(next(each for each in statements if f"TABLE IF NOT EXISTS {table} (" in each))
        db.execute(f"INSERT INTO {table} ({both}) SELECT {both} FROM {table}_before")  # noqa: S608 - our own names
        db.execute(f"DROP TABLE {table}_before")
    for each in statements:
        db.execute(each)  # also the indexes, which went with the old tables


def _wanted(script: str) -> dict[str, list[str]]:
    """The tables of a script, each with its columns."""
    empty = sqlite3.connect(":memory:")
    try:
        empty.executescript(script)
        tables = empty.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: _columns(empty, name) for (name,) in tables}
    finally:
        empty.close()


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
