"""A pytest plugin: wherever Flock's own tests make a store of theirs, they get a Kafka blackboard."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import flock.core.store
import pytest

from forebay.blackboard.flock import KafkaBlackboardStore

_made: list[KafkaBlackboardStore] = []
_used = 0


class Board(KafkaBlackboardStore):
    """Takes what their stores take: nothing, or the path of a database, which is a board of its own."""

    def __init__(self, db_path: str | None = None, **_: Any) -> None:
        global _used
        _used += 1
        super().__init__(
            os.environ["KAFKA_BOOTSTRAP_SERVERS"], topic_prefix=f"suite-{uuid4().hex}.", partitions=2
        )
        _made.append(self)

    async def ensure_schema(self) -> None:
        await self.start()


flock.core.store.InMemoryBlackboardStore = Board
flock.core.store.SQLiteBlackboardStore = Board


def pytest_runtest_teardown() -> None:
    while _made:
        _made.pop()._close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which a suite was left out, or ran on their stores, has shown nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    left_out = len(reporter.stats.get("skipped", ())) + len(reporter.stats.get("deselected", ()))
    if left_out or not _used:
        session.exitstatus = 1
        print(f"\n{left_out} tests left out, {_used} stores replaced")
