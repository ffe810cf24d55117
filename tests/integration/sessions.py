"""What the tests of sessions share: a session, a source on a topic, what the group and the checkpoint say."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support import Cluster, unique

import forebay
from forebay.catalog import Catalog
from forebay.kafka.offsets import KafkaPosition
from forebay.runtime import checkpoints
from forebay.runtime import spark as sparks
from forebay.source.serving import ReadState

SPARK = {"spark.sql.shuffle.partitions": "2"}
BASE_MS = 1_768_471_200_000  # 2026-01-15 10:00:00 UTC, a whole minute
EVENTS = "id BIGINT NOT NULL, k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
PATIENCE_S = 60

Send = Callable[..., None]
"""Writes records to a source's topic, and waits until its views have them."""


def connect(home: Path, **more: Any) -> forebay.Session:
    """A session on the Spark of this process, which goes on when the session ends.

    Its JVM takes ten seconds to start, and is slow for longer: some fifty tests need not each pay that. What a
    Spark of one's own is like, the tests of the command line see.
    """
    if not sparks.is_running():
        sparks.start("local[2]", SPARK, Path(tempfile.gettempdir()) / f"forebay-tests-{os.getpid()}")
    return forebay.connect(home=home, master="local[2]", spark_conf=SPARK, **more)


def name(prefix: str) -> str:
    """A name for a source or a view that nobody else uses."""
    return unique(prefix).replace("-", "_")


def event(number: int, **more: Any) -> str:
    """A record of EVENTS: one a second, keys a and b in turn."""
    row = {"id": number, "k": "ab"[number % 2], "v": number, "ts": BASE_MS + number * 1000}
    return json.dumps(row | more)


def events(numbers: Iterable[int], **more: Any) -> list[str]:
    return [event(number, **more) for number in numbers]


def create_source(
    cluster: Cluster, source: str, topic: str, columns: str = EVENTS, **options: str | int
) -> str:
    """The CREATE SOURCE statement; `group_id` of the source is its name unless given."""
    given = {"brokers": cluster.bootstrap_servers, "topic": topic, "group_id": source, **options}
    listed = ", ".join(f"{key} = '{value}'" for key, value in given.items())
    return f"CREATE SOURCE {source} ({columns}) FROM KAFKA ({listed}) FORMAT JSON"


@contextmanager
def catalog_of(session: forebay.Session) -> Iterator[Catalog]:
    """The catalog as another process sees it."""
    with closing(Catalog(session.home / "catalog.db")) as catalog:
        yield catalog


def create_view(session: forebay.Session, query: str) -> str:
    """A materialized view of this query; returns its name."""
    view = name("view")
    session.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
    return view


def caught_up(session: forebay.Session) -> None:
    session.wait(until_caught_up=True, timeout=PATIENCE_S)


def checkpoint_of(home: Path, view: str) -> Path:
    """The checkpoint of the query that reads for a view: its own, or that of all views over its source."""
    for read in [*(home / "sources").glob("*/read"), home / "views" / view / "alone"]:
        if view in ReadState.read(read / "views.json").views:
            return read / "checkpoint"
    return home / "views" / view / "checkpoint"


def checkpointed(session_home: Path, view: str, topic: str) -> dict[int, int]:
    """The offsets up to which a view has the topic's partitions, by the checkpoint."""
    checkpoint = checkpoint_of(session_home, view)
    state = ReadState.read(checkpoint.parent / "views.json").views.get(view)
    if state is not None and state.position is not None:
        return partitions(state.position, topic)
    found = checkpoints.committed(checkpoint)
    return {} if found is None else partitions(found.offsets[0], topic)


def partitions(offsets: dict[str, Any], topic: str) -> dict[int, int]:
    position = KafkaPosition.from_json(offsets)
    return {number: offset for (name, number), offset in position.next.items() if name == topic}


def rows(session: forebay.Session, query: str) -> list[tuple[Any, ...]]:
    return session.sql(query).fetchall()


def notes(session: forebay.Session, statement: str) -> list[str]:
    """The lines under the table of a DESCRIBE."""
    return [line.strip() for line in session.sql(statement).notes]


def utc(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Times come back in the session's time zone, UTC, with or without saying so."""
    return [
        tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) and v.tzinfo is None else v for v in row)
        for row in found
    ]
