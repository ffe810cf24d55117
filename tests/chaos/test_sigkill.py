"""SIGKILL at random moments: each record is in the views exactly once, and the group never ran ahead.

FOREBAY_CHAOS_KILLS sets how often (10), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from sessions import checkpointed
from support import QUIET, Cluster, eventually

from forebay.catalog import Catalog

KILLS = int(os.environ.get("FOREBAY_CHAOS_KILLS", "10"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
EARLY, EARLY_S = (
    0.6,
    4.0,
)  # this share of the kills: so long after the start, about as long as a first batch takes
LATE_S = 2.0  # the others: so long after the first batch, some batches' time
BAD_EVERY = 100
AHEAD = 20_000  # ten batches: always enough to be in the middle of, never too much to catch up with
VIEWS = ("plain", "sums")
GROUP = "chaos"
PIPELINE = """
CREATE SOURCE chaos (id BIGINT NOT NULL, k STRING NOT NULL, v BIGINT NOT NULL)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = 'chaos', max_records_per_batch = 2000) FORMAT JSON;
CREATE MATERIALIZED VIEW plain AS SELECT id, v FROM chaos;
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM chaos GROUP BY k EMIT CHANGES;
"""


class Production(threading.Thread):
    """Produces until it is told to end, never further ahead than AHEAD; every so often a record is junk."""

    def __init__(self, servers: str, topic: str, reached: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._topic = topic
        self._reached = reached
        self._ended = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5}, logger=QUIET)

    def run(self) -> None:
        while not self._ended.wait(0.2):
            if self.sent - self._reached() > AHEAD:
                continue
            for number in range(self.sent, self.sent + 100):
                row = {"id": number, "k": f"k{number % 7}", "v": number}
                value = '{"id":' if number % BAD_EVERY == 0 else json.dumps(row)
                self._producer.produce(self._topic, value, partition=number % 3)
            self.sent += 100
            self._producer.poll(0)

    def end(self) -> int:
        self._ended.set()
        self.join()
        assert self._producer.flush(60) == 0
        return self.sent


class Pipeline:
    """`forebay run` in a process group of its own."""

    def __init__(self, script: Path, home: Path, log: Path, *arguments: str, view: str = "plain") -> None:
        self.log = log
        self._checkpoint = home / "views" / view / "checkpoint"
        self._before = last(self._checkpoint, "commits")
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forebay", "run", str(script), "--home", str(home), "--master", "local[2]",
                 *arguments],
                stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def await_running(self, *, first_batch: bool) -> None:
        def running() -> bool:
            assert self.process.poll() is None, f"it ended by itself:\n{self.log.read_text()}"
            if not first_batch:
                return "view sums" in self.log.read_text()
            return last(self._checkpoint, "commits") > self._before

        eventually(running, f"the pipeline runs; {self.log}", timeout=120)

    def kill(self, whole_group: bool) -> None:
        if whole_group:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(30)

    def remains(self) -> list[int]:
        """Processes of the group that still live: without their driver, Spark and its workers must end."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found


def last(checkpoint: Path, log: str) -> int:
    """The newest batch in one of Spark's logs: `offsets` has those begun, `commits` those done."""
    folder = checkpoint / log
    numbers = (
        [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()] if folder.is_dir() else []
    )
    return max(numbers, default=-1)


def views_in_the_middle_of_a_batch(home: Path) -> int:
    checkpoints = [home / "views" / view / "checkpoint" for view in VIEWS]
    return sum(last(path, "offsets") > last(path, "commits") for path in checkpoints)


def assert_group_is_not_ahead(cluster: Cluster, home: Path, topic: str) -> None:
    group = cluster.committed(GROUP, topic)  # asked first: the checkpoint only grows
    for view in VIEWS:
        reached = checkpointed(home, view, topic)
        ahead = {n: (offset, reached.get(n, 0)) for n, offset in group.items() if offset > reached.get(n, 0)}
        assert not ahead, f"the group is ahead of {view} in {ahead}"


@pytest.mark.timeout(240 + 60 * KILLS)
def test_each_record_is_in_the_views_once_however_often_the_driver_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    home, script, topic = tmp_path / "home", tmp_path / "pipeline.sql", cluster.make_topic(3)
    script.write_text(PIPELINE.format(brokers=cluster.bootstrap_servers, topic=topic))
    production = Production(
        cluster.bootstrap_servers,
        topic,
        lambda: min(sum(checkpointed(home, view, topic).values()) for view in VIEWS),
    )
    production.start()
    killed: list[Pipeline] = []
    broken = 0
    try:
        for kill in range(KILLS):
            pipeline = Pipeline(script, home, tmp_path / f"run-{kill}.log")
            killed.append(pipeline)
            early = moments.random() < EARLY
            pipeline.await_running(first_batch=not early)
            time.sleep(moments.uniform(0, EARLY_S if early else LATE_S))  # the moment is what is random here
            assert_group_is_not_ahead(cluster, home, topic)
            pipeline.kill(whole_group=kill % 2 == 0)
            assert_group_is_not_ahead(cluster, home, topic)
            broken += views_in_the_middle_of_a_batch(home)
        produced = production.end()
        final = Pipeline(script, home, tmp_path / "final.log", "--until-caught-up", "--timeout", "150")
        killed.append(final)
        assert final.process.wait(200) == 0, final.log.read_text()
    finally:
        production.end()
        for pipeline in killed:
            if pipeline.process.poll() is None:
                pipeline.kill(whole_group=True)

    print(f"{KILLS} kills, {broken} batches broken off, {produced} records")
    assert broken or KILLS < 5, "no kill fell into a batch: this has shown nothing"
    good = [number for number in range(produced) if number % BAD_EVERY]
    plain = DeltaTable(str(home / "views" / "plain" / "table")).to_pyarrow_table()
    assert sorted(plain["id"].to_pylist()) == good
    sums = DeltaTable(str(home / "views" / "sums" / "table")).to_pyarrow_table().to_pylist()
    expected = {f"k{rest}": [number for number in good if number % 7 == rest] for rest in range(7)}
    assert {row["k"]: (row["n"], row["total"]) for row in sums} == {
        key: (len(numbers), sum(numbers)) for key, numbers in expected.items()
    }
    assert len(sums) == 7

    catalog = Catalog(home / "catalog.db")
    try:
        for view in VIEWS:
            [totals] = catalog.totals(view=view)
            assert totals.records == produced
            assert totals.rejected == {"MalformedPayload": produced - len(good)}
    finally:
        catalog.close()
    ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
    assert cluster.committed(GROUP, topic) == checkpointed(home, "plain", topic) == ends
    assert checkpointed(home, "sums", topic) == ends
    for pipeline in killed:
        eventually(lambda gone=pipeline: not gone.remains(), f"nothing is left of {pipeline.log}")  # type: ignore[misc]
