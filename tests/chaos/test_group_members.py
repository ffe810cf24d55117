"""Processes that share a group are frozen, killed and started again: every record is in a home, and none twice in one.

A batch in flight may be in two homes: its process had it in a table when the group gave the partition to another one. In the
table that all of them append to, each record is once.
FOREBAY_CHAOS_ROUNDS sets how often it all happens (1).
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pipelines import Pipeline, pipelines
from support import Cluster
from waiting import eventually

from forebay.kafka.share import ShareFolder
from forebay.views.paths import paths_of

ROUNDS = int(os.environ.get("FOREBAY_CHAOS_ROUNDS", "1"))
PARTITIONS = 4
SESSION_S = 6.0  # the least that a broker allows by default
AGAIN_S = 5.0  # so long after a rebalance records flow again
SLOW = 3  # a machine that runs other tests besides
BATCH = 500
SCRIPT = """
CREATE SOURCE s (id BIGINT NOT NULL, v BIGINT NOT NULL)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = '{group}', group_mode = 'shared',
            session_timeout_ms = 6000, max_records_per_batch = {batch}) FORMAT JSON;
CREATE MATERIALIZED VIEW plain AS SELECT id, v FROM s;
CREATE MATERIALIZED VIEW common WITH (location = '{lake}') AS SELECT id, v FROM s;
CREATE MATERIALIZED VIEW sums AS SELECT v % 5 AS rest, count(*) AS n FROM s GROUP BY v % 5 EMIT CHANGES;
"""


class Steady(threading.Thread):
    """Writes a hundred records a second to the partitions in turn, until it is closed."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._topic, self._producer, self._ended = topic, cluster.producer(), threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            for number in range(self.sent, self.sent + 10):
                value = json.dumps({"id": number, "v": number})
                self._producer.produce(self._topic, value, partition=number % PARTITIONS)
            self._producer.flush(10)
            self.sent += 10

    def close(self) -> None:
        self._ended.set()
        self.join()


def rows_of(home: Path, view: str = "plain", column: str = "id") -> list[int]:
    table = paths_of(home, view).table
    return rows_in(Path(str(table)), column) if (table / "_delta_log").exists() else []


def rows_in(table: Path, column: str = "id") -> list[int]:
    found: list[int] = DeltaTable(str(table)).to_pyarrow_table(columns=[column])[column].to_pylist()
    return found


def assigned(home: Path) -> set[int]:
    share = ShareFolder(home / "sources" / "s" / "read" / "group")
    return {number for _, number in share.assignment().partitions}


def stop_or_go(pipeline: Pipeline, what: signal.Signals) -> None:
    os.killpg(pipeline.process.pid, what)


@pytest.mark.long
@pytest.mark.timeout(300 * ROUNDS)
def test_no_record_is_lost_when_members_join_freeze_are_killed_and_come_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.make_topic(PARTITIONS)
    script = tmp_path / "pipeline.sql"
    lake = tmp_path / "lake"
    script.write_text(
        SCRIPT.format(
            brokers=cluster.bootstrap_servers, topic=topic, group=f"g-{topic}", batch=BATCH, lake=lake
        )
    )
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
    steady = Steady(cluster, topic)
    took: dict[str, list[float]] = {}

    def flows_again(home: Path, what: str) -> None:
        """Until a home has records of every partition that were written after now."""
        began, sent = time.monotonic(), steady.sent
        eventually(
            lambda: {number % PARTITIONS for number in rows_of(home) if number >= sent} >= set(range(PARTITIONS)),
            f"{home.name} reads all partitions after the other was {what}", 90,
        )  # fmt: skip
        took.setdefault(what, []).append(time.monotonic() - began)

    with ExitStack() as running:
        starts = {home: running.enter_context(pipelines(script, home, home)) for home in (one, two)}
        first = starts[one]()
        second = starts[two]()  # both join at once
        running.enter_context(closing(steady))
        steady.start()
        both = lambda: len(assigned(one)) == 2 == len(assigned(two))  # noqa: E731
        eventually(both, "each has two partitions", 120)
        eventually(lambda: rows_of(one) and rows_of(two), "both read", 60)
        for _ in range(ROUNDS):
            stop_or_go(second, signal.SIGSTOP)
            flows_again(one, "frozen")
            stop_or_go(second, signal.SIGCONT)
            eventually(both, "it is a member again", 60)
            sent = steady.sent
            eventually(lambda: max(rows_of(two), default=0) >= sent, "it reads again", 60)  # noqa: B023
            second.kill(whole_group=True)
            flows_again(one, "killed")
            second = starts[two]()
            eventually(both, "it has come back", 120)
            sent = steady.sent
            eventually(lambda: max(rows_of(two), default=0) >= sent, "it reads again", 60)  # noqa: B023
        second.process.send_signal(signal.SIGINT)
        flows_again(one, "ended")
        second.process.wait(60)
        steady.close()
        everything = set(range(steady.sent))
        eventually(lambda: set(rows_of(one)) | set(rows_of(two)) >= everything, "all is read", 60)
        eventually(lambda: set(rows_in(lake)) >= everything, "the table of both has all", 60)
        first.process.send_signal(signal.SIGINT)
        first.process.wait(60)

    assert sorted(rows_in(lake)) == sorted(everything), "the table of both has each record once"
    in_one, in_two = Counter(rows_of(one)), Counter(rows_of(two))
    assert max(in_one.values()) == max(in_two.values()) == 1, "no home has a record twice"
    assert set(in_one) | set(in_two) == everything
    twice = set(in_one) & set(in_two)
    print(f"{steady.sent} records, {len(in_two)} of them in the second home, {len(twice)} in both; {took}")
    assert len(twice) <= 2 * ROUNDS * BATCH, "at most the batch in flight of each that was killed or frozen"
    for home, ids in ((one, in_one), (two, in_two)):
        assert sum(rows_of(home, "sums", "n")) == len(ids), "groups are of the same records as rows"
    assert max(took["ended"]) < SLOW * AGAIN_S
    assert max(took["killed"] + took["frozen"]) < SESSION_S + SLOW * AGAIN_S
