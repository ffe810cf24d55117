"""What became of each letter, and what a replay was about to send when it was killed.

A letter that nobody has touched has no row here: it is open. Rows outlive their source, as its letters do: one that is
dropped and created again must not send them again. The rows are in the catalog's file, on a
connection of their own that waits for the disk: a replay that is forgotten after a power cut is sent twice.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter
from forebay.home_tables import STEPS
from forebay.sqlite import migrate, transaction, write_ahead

Marks = Mapping[Identity, str]
"""Letters, each with its mark: see `mark_of`."""

Sent = Mapping[Identity, tuple[int | None, int | None]]
"""Where each replayed letter is now: partition and offset in the target topic, where that is known."""


class LetterState(StrEnum):
    """Where a letter is in its life."""

    OPEN = "open"  # nobody has decided yet
    REPLAYED = "replayed"  # sent once more, and nothing bad was heard of it
    FAILED_AGAIN = "failed_again"  # sent once more, and refused again: there is a new letter about it
    DISCARDED = "discarded"  # somebody decided that it is not wanted


@dataclass(frozen=True)
class Outcome:
    """What became of a letter; `reason` is why it was discarded, or where the letter is that it came to again."""

    state: LetterState = LetterState.OPEN
    at_ms: int | None = None
    reason: str | None = None
    replay_id: str | None = None
    target_topic: str | None = None
    target_partition: int | None = None
    target_offset: int | None = None


OPEN = Outcome()


@dataclass(frozen=True)
class Intent:
    """Letters that were about to be sent in one transaction, and where the target's partitions ended then."""

    replay_id: str
    target: str
    since: Mapping[int, int]
    letters: Marks
    target_id: str = ""  # of the target topic: one that was deleted and made again is another


class Outcomes:
    """One connection, usable from any thread of a process."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, check_same_thread=False, timeout=30, isolation_level=None)
        write_ahead(self._db)
        self._db.execute("PRAGMA synchronous=FULL")
        migrate(self._db, STEPS)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self, actor: str | None = None) -> Iterator[sqlite3.Connection]:
        """`actor` is who does it, for the history, which triggers write."""
        with self._lock, transaction(self._db):
            before = self._db.execute("SELECT coalesce(max(id), 0) FROM dead_letter_history").fetchone()[0]
            yield self._db
            if actor is not None:
                self._db.execute("UPDATE dead_letter_history SET actor = ? WHERE id > ?", (actor, before))

    # -- states --------------------------------------------------------------------------------------

    def of(self, source: str, letter: Letter) -> Outcome:
        *place, topic_id = letter.identity
        with self._lock:
            rows = self._db.execute(
                "SELECT topic_id, mark, state, at_ms, reason, replay_id, target_topic, target_partition, target_offset "
                'FROM dead_letter_outcomes WHERE source = ? AND topic = ? AND partition = ? AND "offset" = ?',
                (source, *place),
            ).fetchall()
        for known_id, mark, state, *rest in rows:
            if _is_of(letter, topic_id, known_id, mark):
                return Outcome(LetterState(state), *rest)
        return OPEN

    def history(self, source: str, letter: Letter) -> list[tuple[Outcome, str | None]]:
        """All that became of a letter, the oldest first, and who did it where that is known."""
        *place, topic_id = letter.identity
        with self._lock:
            rows = self._db.execute(
                "SELECT topic_id, mark, actor, state, at_ms, reason, replay_id, target_topic, target_partition, target_offset "
                'FROM dead_letter_history WHERE source = ? AND topic = ? AND partition = ? AND "offset" = ? ORDER BY id',
                (source, *place),
            ).fetchall()
        return [
            (Outcome(LetterState(state), *rest), actor)
            for known_id, mark, actor, state, *rest in rows
            if _is_of(letter, topic_id, known_id, mark)
        ]

    def discard(self, source: str, letters: Marks, reason: str, actor: str | None = None) -> None:
        with self._transaction(actor) as db:
            db.executemany(
                "INSERT OR REPLACE INTO dead_letter_outcomes "
                "VALUES (?, ?, ?, ?, ?, ?, 'discarded', ?, ?, NULL, NULL, NULL, NULL)",
                [(source, *identity, mark, _now(), reason) for identity, mark in letters.items()],
            )

    def reopen(self, source: str, letters: Iterable[Identity], actor: str | None = None) -> None:
        """A letter that nobody has touched has no row."""
        with self._transaction(actor) as db:
            db.executemany(
                "DELETE FROM dead_letter_outcomes WHERE source = ? AND topic = ? AND partition = ? "
                "AND \"offset\" = ? AND topic_id IN ('', ?) AND state = 'discarded'",
                [(source, *identity) for identity in letters],
            )

    def failed_again(self, replay_id: str, first: Identity, letter: Identity) -> bool:
        """A replayed record came to a letter once more; True if this is news."""
        with self._transaction() as db:
            done = db.execute(
                "UPDATE dead_letter_outcomes SET state = 'failed_again', at_ms = ?, reason = ? WHERE replay_id = ? "
                "AND topic = ? AND partition = ? AND \"offset\" = ? AND topic_id = ? AND state = 'replayed'",
                (_now(), f"again as {letter.place}", replay_id, *first),
            )
            return done.rowcount > 0

    def counts(self) -> dict[tuple[str, LetterState], int]:
        """How many letters of each source are in each state; those that are open are not known here."""
        with self._lock:
            rows = self._db.execute(
                "SELECT source, state, count(*) FROM dead_letter_outcomes GROUP BY source, state"
            ).fetchall()
        return {(source, LetterState(state)): count for source, state, count in rows}

    def any_of(self, source: str) -> bool:
        with self._lock:
            found = self._db.execute(
                "SELECT 1 FROM dead_letter_outcomes WHERE source = ? LIMIT 1", (source,)
            ).fetchone()
        return found is not None

    def any_replayed(self) -> bool:
        with self._lock:
            found = self._db.execute(
                "SELECT 1 FROM dead_letter_outcomes WHERE state = 'replayed' LIMIT 1"
            ).fetchone()
        return found is not None

    # -- what is old ---------------------------------------------------------------------------------

    def settled_before(self, source: str, at_ms: int) -> set[Identity]:
        """Letters of which nothing was decided since then, those that were opened again among them."""
        with self._lock:
            rows = self._db.execute(
                'SELECT topic, partition, "offset", topic_id FROM dead_letter_history WHERE source = ? '
                'GROUP BY topic, partition, "offset", topic_id HAVING max(at_ms) < ?',
                (source, at_ms),
            ).fetchall()
        return {Identity(*row) for row in rows}

    def forget(self, source: str, letters: Iterable[Identity]) -> None:
        """All that became of letters that nobody will meet again. One of which there is a letter would be open again."""
        of_one = 'source = ? AND topic = ? AND partition = ? AND "offset" = ? AND topic_id = ?'
        keys = [(source, *identity) for identity in letters]
        with self._transaction() as db:
            db.executemany(f"DELETE FROM dead_letter_outcomes WHERE {of_one}", keys)  # noqa: S608
            # After that: a trigger has noted that they are open, and the index of letters must not hear of it.
            db.executemany(f"DELETE FROM dead_letter_history WHERE {of_one}", keys)  # noqa: S608

    # -- replays -------------------------------------------------------------------------------------

    @staticmethod
    def transactional_prefix(source: str) -> str:
        """What the transactional ids of all homes begin with that replay letters of this source."""
        return f"forebay-replay-{source}-"

    def transactional_id(self, source: str) -> str:
        """The same for all replays of a source from this home: each fences off the one before it."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO dead_letter_replayers VALUES (?, ?)",
                (source, f"{self.transactional_prefix(source)}{uuid.uuid4().hex[:12]}"),
            )
            row = db.execute(
                "SELECT transactional_id FROM dead_letter_replayers WHERE source = ?", (source,)
            ).fetchone()
        return str(row[0])

    def intend(self, source: str, intent: Intent) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO dead_letter_intents VALUES (?, ?, ?, ?, ?, ?)",
                (intent.replay_id, source, intent.target, json.dumps(intent.since),
                 json.dumps([(*identity, mark) for identity, mark in intent.letters.items()]), intent.target_id),
            )  # fmt: skip

    def intents(self, source: str) -> list[Intent]:
        with self._lock:
            rows = self._db.execute(
                "SELECT replay_id, target, since, letters, target_id FROM dead_letter_intents WHERE source = ?",
                (source,),
            ).fetchall()
        return [
            Intent(
                replay_id,
                target,
                {int(number): offset for number, offset in json.loads(since).items()},
                {Identity(*identity): mark for *identity, mark in json.loads(letters)},
                target_id,
            )
            for replay_id, target, since, letters, target_id in rows
        ]

    def settle(self, source: str, intent: Intent, sent: Sent, actor: str | None = None) -> None:
        """The intent came to this: those in `sent` are replayed, the others as open as they were."""
        with self._transaction(actor) as db:
            db.executemany(
                "INSERT OR REPLACE INTO dead_letter_outcomes "
                "VALUES (?, ?, ?, ?, ?, ?, 'replayed', ?, NULL, ?, ?, ?, ?)",
                [
                    (
                        source,
                        *identity,
                        intent.letters.get(identity, ""),
                        _now(),
                        intent.replay_id,
                        intent.target,
                        partition,
                        offset,
                    )
                    for identity, (partition, offset) in sent.items()
                ],
            )
            db.execute("DELETE FROM dead_letter_intents WHERE replay_id = ?", (intent.replay_id,))

    # -- how far letters have been looked through for records that failed again ------------------------

    def watched(self, source: str, place: str) -> dict[int, int] | None:
        with self._lock:
            row = self._db.execute(
                "SELECT positions FROM dead_letter_watches WHERE source = ? AND place = ?", (source, place)
            ).fetchone()
        return {int(number): offset for number, offset in json.loads(row[0]).items()} if row else None

    def watch(self, source: str, place: str, positions: Mapping[int, int]) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO dead_letter_watches VALUES (?, ?, ?)",
                (source, place, json.dumps(positions)),
            )


def _is_of(letter: Letter, topic_id: str, known_id: str, mark: str) -> bool:
    """Whether what is known of an id and a mark is about this letter."""
    if topic_id and known_id:
        return topic_id == known_id
    return not mark or mark_of(letter) in (
        "",
        mark,
    )  # one of the two does not know: then the record itself tells


def mark_of(letter: Letter) -> str:
    """What tells a record from another one at the same place where the topic's id is not known.

    The same in every letter about it, however much of it the letter carries; empty where the letter does not know.
    """
    if letter.size < 0:
        return ""
    key = hashlib.sha256(letter.key).hexdigest()[:16] if letter.key is not None else "-"
    return f"{letter.timestamp_ms}:{letter.size}:{key}"


def _now() -> int:
    return int(time.time() * 1000)
