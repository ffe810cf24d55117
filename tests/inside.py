"""What tests reach of the inside of a class, in one place: each with the reason why no public way would do.

Most of it breaks something on purpose: a disk that is full, a process that dies between two lines, a thread that fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

# -- the native reader and the one behind it ----------------------------------------------------------------------


def forget_what_was_said() -> None:
    """Why the native reader is left out is said once a process; each test has to hear it again."""
    from forebay.kafka import native_reader

    native_reader._say_once.cache_clear()


def forbid_the_plain_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native reader hands over to the plain one in silence: who tests the former must not read with the latter."""
    monkeypatch.delattr("forebay.kafka.reading._read_plain")


def watch_the_plain_reader(monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], None]) -> None:
    """Shows the ranges that the native reader leaves to the plain one."""
    from forebay.kafka import reading

    plain = reading._read_plain

    def watched(ranges: Any, *rest: Any) -> Any:
        look(ranges)
        return plain(ranges, *rest)

    monkeypatch.setattr(reading, "_read_plain", watched)


def parse_exactly(decoder: Any) -> None:
    """Of the two JSON parsers a decoder chooses by its columns; their answers are compared."""
    from forebay.formats.json_format import parse_exact

    decoder._parse = parse_exact


# -- sessions -----------------------------------------------------------------------------------------------------


def connector_of(session: Any, source: str, *, opened: bool = False) -> Any:
    """A source's connector as its tasks have it, to decode with, and to see that it shows no secret."""
    return session._sources.connector(source) if opened else session._sources.peek(source)


def end_query(session: Any, view: str) -> None:
    """The query ends and the session does not notice, as when Spark loses it: the view is neither dropped nor failed."""
    session._views.running.pop(view).stop()


def starts_of(session: Any, statement: Any, sources: list[str]) -> Any:
    """Where a view would start, written down without a Spark to run it."""
    starts, _ = session._views._starts.of(statement, sources)
    return starts


def connection_of(catalog: Any) -> sqlite3.Connection:
    """What a catalog writes, and when it waits for the disk, only its own connection knows."""
    found: sqlite3.Connection = catalog._connection
    return found


def parquet_writer(path: str, batch: int) -> Callable[[Any], Any]:
    """What executors write a batch's files with: a power failure in one of them is played without a Spark."""
    from forebay.views import table

    made: Callable[[Any], Any] = table._parquet_writer(path, batch)
    return made


def commit_properties(query: str, batch: int) -> Any:
    """A commit that carries its batch, made by another hand than the table's."""
    from forebay.views import table

    return table._properties(query, batch)


# -- dead letters -------------------------------------------------------------------------------------------------


def owner_of(letters: Any) -> Any:
    """Under which key outcomes are kept is seen by nobody, and must not change."""
    return letters._owner


def reader_of(letters: Any) -> Any:
    """How many records in a dead-letter topic are no letters is counted by the reader alone."""
    return letters._reader()


def alone(letters: Any, what: str) -> AbstractContextManager[None]:
    """Another process at the same letters, for as long as a test likes."""
    held: AbstractContextManager[None] = letters.alone(what)
    return held


def break_replay(monkeypatch: pytest.MonkeyPatch, at: str, instead: Callable[..., Any]) -> Callable[..., Any]:
    """Put something in the place of a step of a replay (`look`, `commit`); returns the step itself."""
    from forebay.deadletter import replay
    from forebay.kafka.producer import KafkaProducer

    owner, name = (KafkaProducer, "commit") if at == "commit" else (replay, f"_{at}")
    real: Callable[..., Any] = getattr(owner, name)
    monkeypatch.setattr(owner, name, instead)
    return real


# -- the blackboard -----------------------------------------------------------------------------------------------


def moment_of(store: Any) -> AbstractContextManager[Any]:
    """What a long search holds, for as long as a test likes."""
    held: AbstractContextManager[Any] = store._index.moment()
    return held


async def write_records(store: Any, records: list[Any]) -> None:
    """Records that are no artifacts, as an agent's marks are."""
    await store._write(records)


def fresh_marks(marks: Any) -> Any:
    """Marks that the index need not have yet: how many are kept is seen in the memory alone."""
    return marks._fresh


def replace_producer(store: Any, wrap: Callable[[Any], Any]) -> None:
    """A producer that fails in a way that nobody has thought of."""
    store._writer._producer = wrap(store._writer._producer)


def count_of(index: Any, topic: str) -> int:
    """How many rows the index has of a topic, whatever its table is called."""
    [(count,)] = index.rows(f"SELECT count(*) FROM {index._tables[topic]}")
    return int(count)


# -- the rest -----------------------------------------------------------------------------------------------------


def processes_with_registries() -> set[int]:
    """Clients are kept by process, so that a forked one makes its own."""
    from forebay.registry import shared

    return {process for process, _ in shared._registries}


def held_lock(cache: Any) -> AbstractContextManager[Any]:
    """A thread that is inside of the cache while the process is forked."""
    lock: AbstractContextManager[Any] = cache._lock
    return lock


def fail_attempt(record: Any) -> None:
    """What a pool does with a record before it is tried again."""
    record._attempts = record.attempt


def give_outbox(record: Any, most_bytes: int) -> Any:
    """What a transactional pool gives a record before each attempt."""
    from forebay.pool.outputs import Outbox

    record._outbox = Outbox(most_bytes)
    return record._outbox
