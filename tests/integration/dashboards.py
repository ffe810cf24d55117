"""What the tests of the dashboard share: a pipeline with poison in its topic, and a backend beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sessions
from support import Cluster
from waiting import eventually

from forebay.errors import UnreachableError
from forebay.runtime.session import Session
from forebay.web.backend import Backend

HOSTILE = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "${7*7}",
    "'\"><svg/onload=alert(1)>",
    "\x1b[2J\x1b[31mred",
    "\u202egnp.exe",
    "](javascript:alert(1))",
    "\u0000null",
    "=cmd|'/c calc'!A1",
    "\U0001f600 ok",
)
"""Keys, values, headers and names that something might take for more than text."""


@dataclass(frozen=True)
class Pipeline:
    """A source with ON ERROR = 'dead_letter' and a view over it, running in a session."""

    session: Session
    backend: Backend
    source: str
    view: str
    topic: str
    letters: str
    cluster: Cluster

    def send(self, *values: bytes | str | None, **more: Any) -> None:
        self.cluster.produce(self.topic, values, **more)
        sessions.caught_up(self.session)


@contextmanager
def pipeline(session: Session, cluster: Cluster) -> Iterator[Pipeline]:
    topic, source, view = cluster.make_topic(2), sessions.name("src"), sessions.name("view")
    letters = f"{topic}-dlq"
    made = sessions.create_source(cluster, source, topic)
    eventually(
        lambda: _done(session, f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{letters}')"),
        "a broker that has just started leads what it has just made",
    )
    session.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, k, v FROM {source}")
    backend = Backend(session.home, session)
    try:
        yield Pipeline(session, backend, source, view, topic, letters, cluster)
    finally:
        backend.close()


def _done(session: Session, statement: str) -> bool:
    try:
        session.execute(statement)
    except UnreachableError:
        return False
    return True
