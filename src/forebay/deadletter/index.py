"""An index of letters: what they are about and where they lie, without their bytes. Made anew if it is lost.

One SQLite file a home. Letters are added in the order in which they lie, so that a look reads only what is new; what became
of them is copied from the catalog's history (`dead_letter_history`). Nothing here is the truth: that is the letters
themselves and `Outcomes`.
"""

# ruff: noqa: S608 - statements are put together of our own texts alone; values are always bound

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from forebay.deadletter.entry import replayed_from
from forebay.deadletter.groups import field_of, group_id, pattern_of
from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter
from forebay.deadletter.outcomes import mark_of
from forebay.files import make_folder
from forebay.sqlite import rebuild, transaction, write_ahead

log = logging.getLogger("forebay.deadletter")

VERSION = 2
MOST = 1_000_000  # letters: about 250 MB; the oldest are left out then

_TABLES = """
CREATE TABLE places (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic_id TEXT NOT NULL);
CREATE TABLE positions (place INTEGER NOT NULL, part TEXT NOT NULL, next INTEGER NOT NULL, stamp TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (place, part)) WITHOUT ROWID;
CREATE TABLE writers (id INTEGER PRIMARY KEY, place INTEGER NOT NULL, name TEXT NOT NULL, settled TEXT, UNIQUE (place, name));
CREATE TABLE groups (id INTEGER PRIMARY KEY, writer INTEGER NOT NULL, kind TEXT NOT NULL, field TEXT, pattern TEXT NOT NULL,
    name TEXT NOT NULL UNIQUE);
CREATE TABLE letters (
    id INTEGER PRIMARY KEY, writer INTEGER NOT NULL, grp INTEGER NOT NULL, part TEXT NOT NULL, at INTEGER NOT NULL,
    topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, topic_id TEXT NOT NULL, mark TEXT NOT NULL,
    failed_at_ms INTEGER NOT NULL, timestamp_ms INTEGER, size INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open',
    state_at_ms INTEGER, target_topic TEXT, target_partition INTEGER, target_offset INTEGER, replay_id TEXT,
    again_in TEXT, again_topic TEXT, again_partition INTEGER, again_offset INTEGER, again_topic_id TEXT
);
CREATE UNIQUE INDEX letters_once ON letters (writer, topic, partition, "offset", topic_id, iif(topic_id = '', mark, ''));
CREATE INDEX letters_by_group ON letters (writer, grp, state, failed_at_ms);
CREATE INDEX letters_by_group_time ON letters (writer, grp, failed_at_ms);
CREATE INDEX letters_by_state ON letters (writer, state, failed_at_ms);
CREATE INDEX letters_by_time ON letters (writer, failed_at_ms);
CREATE INDEX letters_by_replay ON letters (replay_id, topic, partition, "offset") WHERE replay_id IS NOT NULL;
CREATE INDEX letters_again ON letters (again_in) WHERE again_in IS NOT NULL;
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE counts (
    unit INTEGER NOT NULL, writer INTEGER NOT NULL, grp INTEGER NOT NULL, state TEXT NOT NULL, slot INTEGER NOT NULL,
    letters INTEGER NOT NULL, PRIMARY KEY (unit, writer, grp, state, slot)
) WITHOUT ROWID;
"""
MINUTE, HOUR = 60_000, 3_600_000
UNITS = (
    MINUTE,
    HOUR,
)  # letters are counted by both: one is exact enough for a day, the other few enough for a year
_COUNT = (
    "INSERT INTO counts SELECT unit, writer, grp, state, failed_at_ms / unit, count(*) FROM letters, "
    f"(SELECT {MINUTE} AS unit UNION ALL SELECT {HOUR}) WHERE letters.id > ? GROUP BY 1, 2, 3, 4, 5 "
    "ON CONFLICT DO UPDATE SET letters = letters + excluded.letters"
)


def _moved(row: str, by: int) -> str:
    """For a trigger: a letter is counted, or not any more."""
    return " ".join(
        f"INSERT INTO counts VALUES ({unit}, {row}.writer, {row}.grp, {row}.state, {row}.failed_at_ms / {unit}, {by}) "
        f"ON CONFLICT DO UPDATE SET letters = letters + {by};"
        for unit in UNITS
    )


_TRIGGERS = (
    f"CREATE TRIGGER letter_moved AFTER UPDATE OF state ON letters WHEN OLD.state <> NEW.state "
    f"BEGIN {_moved('OLD', -1)} {_moved('NEW', 1)} END",
    f"CREATE TRIGGER letter_gone AFTER DELETE ON letters BEGIN {_moved('OLD', -1)} END",
)
_ROW = (
    'l.id, l.writer, g.name, g.kind, g.field, g.pattern, l.part, l.at, l.topic, l.partition, l."offset", l.topic_id, l.mark, '
    "l.failed_at_ms, l.timestamp_ms, l.size, l.state, l.state_at_ms, l.target_topic, l.target_partition, l.target_offset, "
    "l.replay_id"
)


class IndexRow(NamedTuple):
    """One letter, as the index has it. `part` and `at` are where it lies: partition and offset, or file and byte."""

    number: int
    writer: int
    group: str
    kind: str
    field: str | None
    pattern: str
    part: str
    at: int
    topic: str
    partition: int
    offset: int
    topic_id: str
    mark: str
    failed_at_ms: int
    timestamp_ms: int | None
    size: int
    state: str
    state_at_ms: int | None
    target_topic: str | None
    target_partition: int | None
    target_offset: int | None
    replay_id: str | None

    @property
    def identity(self) -> Identity:
        return Identity(self.topic, self.partition, self.offset, self.topic_id)

    @property
    def id(self) -> str:
        return str(self.identity)


class Found(NamedTuple):
    """A letter and where it lies."""

    part: str
    at: int
    letter: Letter


class GroupCount(NamedTuple):
    """Letters of one group and state in one bucket of time."""

    group: str
    writer: int
    kind: str
    field: str | None
    pattern: str
    state: str
    bucket: int
    letters: int


class LetterIndex:
    """One a process and home; others may have it open as well. All methods may be called from any thread."""

    def __init__(self, folder: Path, catalog: Path, most: int = MOST) -> None:
        make_folder(folder)
        self._most = most
        self._path, self._catalog = folder / "index.db", catalog
        self._writing, self._reading = threading.RLock(), threading.RLock()
        try:
            self._open()
        except sqlite3.DatabaseError:  # not a database, or a damaged one
            log.warning("the index of dead letters is damaged, and made anew: %s", self._path)
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._open()

    def _open(self) -> None:
        self._db = self._connect()
        write_ahead(self._db)
        # What a power cut takes away is read again.
        self._db.execute("PRAGMA synchronous=OFF")
        rebuild(self._db, VERSION, _TABLES)
        for trigger in _TRIGGERS:
            self._db.execute(trigger.replace("CREATE TRIGGER", "CREATE TRIGGER IF NOT EXISTS"))
        with transaction(self._db):
            self._db.execute(
                "INSERT OR IGNORE INTO facts SELECT 'history', coalesce(max(id), 0) FROM catalog.dead_letter_history"
            )
        self._reader = self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, check_same_thread=False, timeout=30, isolation_level=None, uri=True)
        db.execute("ATTACH ? AS catalog", (f"{self._catalog.as_uri()}?mode=ro",))
        return db

    def close(self) -> None:
        with self._writing, self._reading:
            self._db.close()
            self._reader.close()

    # -- adding ---------------------------------------------------------------------------------------

    def place(self, name: str, topic_id: str) -> int:
        """The number of a place. One whose topic was deleted and made again is empty."""
        known = self._ask("SELECT id FROM places WHERE name = ? AND ? IN ('', topic_id)", (name, topic_id))
        if known:
            return int(known[0][0])
        with self._change() as db:
            row = db.execute("SELECT id, topic_id FROM places WHERE name = ?", (name,)).fetchone()
            if row is None:
                return int(
                    db.execute(
                        "INSERT INTO places (name, topic_id) VALUES (?, ?)", (name, topic_id)
                    ).lastrowid  # type: ignore[arg-type]
                )
            if topic_id and row[1] != topic_id:
                if row[1]:
                    self._empty(db, row[0])
                db.execute("UPDATE places SET topic_id = ? WHERE id = ?", (topic_id, row[0]))
            return int(row[0])

    def known_place(self, name: str) -> int | None:
        found = self._ask("SELECT id FROM places WHERE name = ?", (name,))
        return found[0][0] if found else None

    def positions(self, place: int) -> dict[str, tuple[int, str]]:
        """By part: where to go on, and what the file looked like then."""
        rows = self._ask("SELECT part, next, stamp FROM positions WHERE place = ?", (place,))
        return {part: (next_, stamp) for part, next_, stamp in rows}

    def add(self, place: int, found: Sequence[Found], positions: Mapping[str, tuple[int, str]]) -> int:
        """Letters, and how far the place was read with them: both or neither. How many are new."""
        with self._change() as db:
            first = db.execute("SELECT coalesce(max(id), 0) FROM letters").fetchone()[0]
            where = db.execute("SELECT name FROM places WHERE id = ?", (place,)).fetchone()[0]
            writers: dict[str, int] = {}
            groups: dict[tuple[int, str, str | None, str], int] = {}
            rows = []
            for part, at, letter in found:
                writer = writers.get(letter.source)
                if writer is None:
                    writer = writers[letter.source] = self._writer(db, place, letter.source)
                key = (writer, letter.kind, field_of(letter.field), pattern_of(letter.message))
                group = groups.get(key)
                if group is None:
                    group = groups[key] = _group(db, where, letter.source, *key)
                rows.append(_values(writer, group, part, at, letter))
            # One that did not know its topic's id may have been written before by a version that does not tell it.
            db.executemany(
                'INSERT OR IGNORE INTO letters (writer, grp, part, at, topic, partition, "offset", topic_id, mark, failed_at_ms, '
                "timestamp_ms, size, again_in, again_topic, again_partition, again_offset, again_topic_id) SELECT ?1, ?2, ?3, "
                "?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17 "
                "WHERE NOT EXISTS (SELECT 1 FROM letters WHERE writer = ?1 AND topic = ?5 AND partition = ?6 AND "
                "\"offset\" = ?7 AND topic_id = '' AND mark = ?9)",
                rows,
            )
            db.executemany(
                "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "next = CASE WHEN stamp = excluded.stamp THEN max(next, excluded.next) ELSE excluded.next END, "
                "stamp = excluded.stamp",
                [(place, part, next_, stamp) for part, (next_, stamp) in positions.items()],
            )
            db.execute(_COUNT, (first,))
            added = db.execute("SELECT count(*) FROM letters WHERE id > ?", (first,)).fetchone()[0]
            self._bound(db)
            return int(added)

    def forget(self, place: int, part: str, before: int | None = None) -> None:
        """Letters of a part that are not there any more: all, or those before an offset."""
        with self._change() as db:
            db.execute(
                "DELETE FROM letters WHERE part = ? AND at < ? AND writer IN (SELECT id FROM writers WHERE place = ?)",
                (part, 2**62 if before is None else before, place),
            )
            if before is None:
                db.execute("DELETE FROM positions WHERE place = ? AND part = ?", (place, part))

    def _empty(self, db: sqlite3.Connection, place: int) -> None:
        db.execute("DELETE FROM letters WHERE writer IN (SELECT id FROM writers WHERE place = ?)", (place,))
        db.execute("DELETE FROM positions WHERE place = ?", (place,))

    def _bound(self, db: sqlite3.Connection) -> None:
        low, high = db.execute("SELECT min(id), max(id) FROM letters").fetchone()
        if high is None or high - low < self._most:
            return
        count = db.execute("SELECT count(*) FROM letters").fetchone()[0]
        if count > self._most:
            gone = db.execute(
                "DELETE FROM letters WHERE id IN (SELECT id FROM letters ORDER BY id LIMIT ?)",
                (count - self._most,),
            ).rowcount
            db.execute(
                "INSERT INTO facts VALUES ('left_out', ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                (gone,),
            )

    @staticmethod
    def _writer(db: sqlite3.Connection, place: int, name: str) -> int:
        db.execute("INSERT OR IGNORE INTO writers (place, name) VALUES (?, ?)", (place, name))
        found = db.execute("SELECT id FROM writers WHERE place = ? AND name = ?", (place, name)).fetchone()
        return int(found[0])

    # -- what became of them --------------------------------------------------------------------------

    def settle(self, writer: int, key: str, since: int = 0) -> None:
        """Give letters the states that the catalog has for them: those that were added after number `since`."""
        with self._change() as db:
            # In this order, and by these keys: SQLite's own plan may be to compare all with all.
            found = db.execute(
                "SELECT o.state, o.at_ms, o.target_topic, o.target_partition, o.target_offset, o.replay_id, l.id "
                "FROM letters l CROSS JOIN catalog.dead_letter_outcomes o WHERE +l.writer = ? AND l.id > ? AND o.source = ? AND "
                + _same("o", "l"),
                (writer, since, key),
            ).fetchall()
            db.executemany(
                "UPDATE letters SET state = ?, state_at_ms = ?, target_topic = ?, target_partition = ?, target_offset = ?, "
                "replay_id = ? WHERE id = ?",
                found,
            )
            if since == 0:
                db.execute("UPDATE writers SET settled = ? WHERE id = ?", (key, writer))

    def settled(self, place: int) -> dict[str, str | None]:
        """By writer: under which owner's key its letters got their states; None if they have not yet."""
        return dict(self._ask("SELECT name, settled FROM writers WHERE place = ?", (place,)))

    def follow_history(self, keys: Mapping[str, Sequence[int]]) -> int:
        """Apply what has become of letters since the last call. `keys` are owners' keys, with their writers' numbers."""
        seen = self._fact("history")
        newest = self._ask("SELECT coalesce(max(id), 0) FROM catalog.dead_letter_history")[0][0]
        if newest <= seen:
            return 0
        with self._change() as db:
            seen = db.execute("SELECT value FROM facts WHERE name = 'history'").fetchone()[0]
            rows = db.execute(
                'SELECT source, topic, partition, "offset", topic_id, mark, state, at_ms, target_topic, target_partition, '
                "target_offset, replay_id FROM catalog.dead_letter_history WHERE id > ? AND id <= ? ORDER BY id",
                (seen, newest),
            ).fetchall()
            db.executemany(
                "UPDATE letters SET state = ?, state_at_ms = ?, target_topic = ?, target_partition = ?, target_offset = ?, "
                'replay_id = ? WHERE writer = ? AND topic = ? AND partition = ? AND "offset" = ? AND '
                "(topic_id = ? OR ((topic_id = '' OR ? = '') AND (mark = '' OR ? IN ('', mark))))",
                [
                    (state, at, *target, writer, topic, partition, offset, topic_id, topic_id, mark)
                    for key, topic, partition, offset, topic_id, mark, state, at, *target in rows
                    for writer in keys.get(key, ())
                ],
            )
            db.execute("UPDATE facts SET value = ? WHERE name = 'history'", (newest,))
            return len(rows)

    def failed_again(self) -> list[tuple[str, Identity, Identity]]:
        """Replays that came to letters again and are not marked so: of which replay, which letter, as which new one."""
        rows = self._ask(
            "SELECT n.again_in, n.again_topic, n.again_partition, n.again_offset, n.again_topic_id, n.topic, n.partition, "
            'n."offset" FROM letters n CROSS JOIN letters l WHERE n.again_in IS NOT NULL AND l.replay_id = n.again_in AND '
            'l.topic = n.again_topic AND l.partition = n.again_partition AND l."offset" = n.again_offset AND '
            "l.state = 'replayed'"
        )
        return [(row[0], Identity(*row[1:5]), Identity(*row[5:8])) for row in rows]

    def _fact(self, name: str) -> int:
        found = self._ask("SELECT value FROM facts WHERE name = ?", (name,))
        return int(found[0][0]) if found else 0

    # -- asking ---------------------------------------------------------------------------------------

    @property
    def left_out(self) -> int:
        """Letters that the bound took out of the index."""
        return self._fact("left_out")

    def newest(self) -> int:
        """The number of the newest letter: those that are added from now on have higher ones."""
        return int(self._ask("SELECT coalesce(max(id), 0) FROM letters")[0][0])

    def writers(self, place: int) -> dict[str, int]:
        return dict(self._ask("SELECT name, id FROM writers WHERE place = ?", (place,)))

    def counts(self, writers: Sequence[int]) -> dict[int, dict[str, int]]:
        """By writer and state."""
        found: dict[int, dict[str, int]] = {}
        for writer, state, letters in self._ask(
            f"SELECT writer, state, sum(letters) FROM counts WHERE unit = {HOUR} AND writer IN ({_marks(writers)}) "
            "GROUP BY writer, state HAVING sum(letters) > 0",
            tuple(writers),
        ):
            found.setdefault(writer, {})[state] = letters
        return found

    def span(self, writers: Sequence[int], state: str, since_ms: int) -> tuple[int, int] | None:
        """The first and the last time at which letters were refused."""
        ends: list[int] = []
        for writer in writers:  # one at a time: each is the end of an index
            where, given = _where([writer], state, None)
            for end in ("min", "max"):
                text = f"SELECT {end}(failed_at_ms) FROM letters l WHERE {where} AND failed_at_ms >= ?"
                ends += [row[0] for row in self._ask(text, (*given, since_ms)) if row[0] is not None]
        return (min(ends), max(ends)) if ends else None

    def grouped(
        self,
        writers: Sequence[int],
        unit: int,
        first: int,
        width: int,
        since_ms: int,
        group: str | None = None,
    ) -> list[GroupCount]:
        """All states of all groups, by buckets of `width` slots of `unit` milliseconds (MINUTE or HOUR), from slot `first`."""
        where, given = _where(writers, "all", group)
        rows = self._ask(
            "SELECT g.name, c.writer, g.kind, g.field, g.pattern, c.state, c.bucket, c.n FROM (SELECT writer, grp, state, "
            f"(slot - ?) / ? AS bucket, sum(letters) AS n FROM counts l WHERE l.unit = ? AND {where} AND slot >= ? "
            "GROUP BY writer, grp, state, bucket) c JOIN groups g ON g.id = c.grp WHERE c.n > 0",
            (first, width, unit, *given, since_ms // unit),
        )
        return [GroupCount(*row) for row in rows]

    def times(self, writer: int, group: str, state: str, since_ms: int) -> tuple[int, int]:
        """When the first and the last letter of a group were refused; there must be one."""
        where, given = _where([writer], state, group)
        low, high = (
            self._ask(
                f"SELECT {end}(failed_at_ms) FROM letters l WHERE {where} AND failed_at_ms >= ?",
                (*given, since_ms),
            )[0][0]
            for end in ("min", "max")
        )
        return low or since_ms, high or since_ms

    def group(self, name: str) -> tuple[int, str, str | None, str] | None:
        """Its writer, kind, field and pattern."""
        found = self._ask("SELECT writer, kind, field, pattern FROM groups WHERE name = ?", (name,))
        return found[0] if found else None

    def count(self, writers: Sequence[int], state: str = "all", group: str | None = None) -> int:
        where, given = _where(writers, state, group)
        text = f"SELECT coalesce(sum(letters), 0) FROM counts l WHERE l.unit = {HOUR} AND {where}"
        return int(self._ask(text, given)[0][0])

    def rows(
        self,
        writers: Sequence[int],
        state: str = "all",
        group: str | None = None,
        *,
        limit: int = -1,
        offset: int = 0,
    ) -> list[IndexRow]:
        """The newest first."""
        if len(writers) > 1:  # each by itself in the order of its index: sorting all would take long
            most = -1 if limit < 0 else limit + offset
            parts = [self.rows([writer], state, group, limit=most) for writer in writers]
            merged = heapq.merge(*parts, key=lambda row: (-row.failed_at_ms, -row.number))
            return list(islice(merged, offset, None if limit < 0 else offset + limit))
        where, given = _where(writers, state, group)
        return self._rows(
            f"WHERE {where} ORDER BY l.failed_at_ms DESC, l.id DESC LIMIT ? OFFSET ?",
            (*given, limit, offset),
        )

    def numbers(self, writer: int, state: str, group: str | None) -> list[int]:
        """Of these letters as of now, in the order in which they were added."""
        where, given = _where([writer], state, group)
        return sorted(row[0] for row in self._ask(f"SELECT l.id FROM letters l WHERE {where}", given))

    def numbered(self, numbers: Sequence[int]) -> list[IndexRow]:
        """The letters of these numbers."""
        return self._rows(
            "WHERE l.id IN (SELECT value FROM json_each(?)) ORDER BY l.id", (json.dumps(numbers),)
        )

    def topics(self, writer: int, state: str, group: str | None) -> list[str]:
        """That the letters' records are of."""
        where, given = _where([writer], state, group)
        return [row[0] for row in self._ask(f"SELECT DISTINCT topic FROM letters l WHERE {where}", given)]

    def named(self, writer: int, identity: Identity) -> list[IndexRow]:
        """Letters of that record; several if the id leaves out which topic of the name it was."""
        return self._rows(
            "WHERE l.writer = ? AND l.topic = ? AND l.partition = ? AND l.\"offset\" = ? AND ? IN ('', l.topic_id)",
            (writer, *identity),
        )

    def replayed(self, replay_ids: Iterable[str]) -> list[IndexRow]:
        """Letters that these replays sent."""
        wanted = list(replay_ids)
        found: list[IndexRow] = []
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            found += self._rows(f"WHERE l.replay_id IN ({_marks(part)})", tuple(part))
        return found

    def targets(self, writer: int) -> dict[tuple[str, int], int]:
        """By partition: the last offset that a record of theirs was replayed to, where nothing bad was heard of it."""
        rows = self._ask(
            "SELECT target_topic, target_partition, max(target_offset) FROM letters WHERE writer = ? AND state = 'replayed' "
            "AND target_offset IS NOT NULL GROUP BY target_topic, target_partition",
            (writer,),
        )
        return {(topic, partition): last for topic, partition, last in rows}

    def _rows(self, where: str, given: Sequence[Any]) -> list[IndexRow]:
        text = f"SELECT {_ROW} FROM letters l JOIN groups g ON g.id = l.grp {where}"
        return [IndexRow(*row) for row in self._ask(text, given)]

    def _ask(self, text: str, given: Sequence[Any] = ()) -> list[Any]:
        with self._reading:
            return self._reader.execute(text, given).fetchall()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._writing, transaction(self._db):
            yield self._db

    def version(self) -> int:
        """Changes whenever the index does, in whichever process: for those who keep an answer."""
        return int(self._ask("PRAGMA data_version")[0][0])


def _values(writer: int, group: int, part: str, at: int, letter: Letter) -> tuple[Any, ...]:
    mark = mark_of(letter)
    again = replayed_from(letter)
    return (
        writer, group, part, at, letter.topic, letter.partition, letter.offset, letter.topic_id, mark,
        letter.failed_at_ms, letter.timestamp_ms, letter.size, *((again[0], *again[1]) if again else (None,) * 5),
    )  # fmt: skip


def _group(
    db: sqlite3.Connection, place: str, source: str, writer: int, kind: str, field: str | None, pattern: str
) -> int:
    name = group_id(f"{place} {source}", kind, field, pattern)
    with contextlib.suppress(sqlite3.IntegrityError):
        db.execute(
            "INSERT INTO groups (writer, kind, field, pattern, name) VALUES (?, ?, ?, ?, ?)",
            (writer, kind, field, pattern, name),
        )
    return int(db.execute("SELECT id FROM groups WHERE name = ?", (name,)).fetchone()[0])


def _where(writers: Sequence[int], state: str, group: str | None) -> tuple[str, tuple[Any, ...]]:
    where = f"l.writer IN ({_marks(writers)})"
    given: tuple[Any, ...] = tuple(writers)
    if group is not None:
        where, given = where + " AND l.grp = (SELECT id FROM groups WHERE name = ?)", (*given, group)
    if state != "all":
        where, given = where + " AND l.state = ?", (*given, state)
    return where, given


def _same(outcome: str, letter: str) -> str:
    """Whether an outcome is of a letter: as `Outcomes.of` has it."""
    o, l = outcome, letter  # noqa: E741
    return (
        f'{o}.topic = {l}.topic AND {o}.partition = {l}.partition AND {o}."offset" = {l}."offset" AND CASE '
        f"WHEN {o}.topic_id <> '' AND {l}.topic_id <> '' THEN {o}.topic_id = {l}.topic_id "
        f"ELSE {o}.mark = '' OR {l}.mark IN ('', {o}.mark) END"
    )


def _marks(items: Sequence[object]) -> str:
    return ", ".join("?" * len(items))
