"""SIGKILL at random moments: each record is in the views exactly once, and the group never ran ahead.

FOREBAY_CHAOS_KILLS sets how often (2), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pipelines import UNTIL_CAUGHT_UP, Pipeline, last, pipelines, table_of
from sessions import checkpoint_of, checkpointed
from support import Cluster
from waiting import eventually

from forebay.catalog import Catalog

KILLS = int(os.environ.get("FOREBAY_CHAOS_KILLS", "2"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
EARLY, EARLY_S = (
    0.6,
    4.0,
)  # this share of the kills: so long after the start, about as long as a first batch takes
LATE_S = 2.0  # the others: so long after the first batch, some batches' time
# Each third kill, or the last of fewer, falls into a batch that has begun: chance alone may miss them all.
AIMED_EVERY = min(3, KILLS)
BAD_EVERY = 100
AHEAD = 20_000  # ten batches: always enough to be in the middle of, never too much to catch up with
VIEWS = ("plain", "sums")
GROUP = "chaos"
PIPELINE = """
CREATE SOURCE chaos (id BIGINT NOT NULL, k STRING NOT NULL, v BIGINT NOT NULL)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = 'chaos', max_records_per_batch = 2000) FORMAT JSON;
CREATE MATERIALIZED VIEW plain AS SELECT id, v FROM chaos;
CREATE MATERIALIZED VIEW odd AS SELECT id, v * 2 AS twice FROM chaos WHERE v % 2 = 1;
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM chaos GROUP BY k EMIT CHANGES;
"""
AT_FIRST = "CREATE MATERIALIZED VIEW leaves AS SELECT id FROM chaos;"
LATER = """
DROP MATERIALIZED VIEW IF EXISTS leaves;
CREATE MATERIALIZED VIEW joins AS SELECT id, k FROM chaos;
CREATE MATERIALIZED VIEW counts AS SELECT v % 5 AS rest, count(*) AS n FROM chaos GROUP BY v % 5 EMIT CHANGES;
"""


class Production(threading.Thread):
    """Produces until it is told to end, never further ahead than AHEAD; every so often a record is junk."""

    def __init__(self, cluster: Cluster, topic: str, reached: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._topic = topic
        self._reached = reached
        self._ended = threading.Event()
        self._producer = cluster.producer()

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

    def close(self) -> None:
        self.end()

    def end(self) -> int:
        self._ended.set()
        self.join()
        assert self._producer.flush(60) == 0
        return self.sent


def queries_in_the_middle_of_a_batch(home: Path) -> int:
    checkpoints = {checkpoint_of(home, view) for view in VIEWS}
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
    pipeline_sql = PIPELINE.format(brokers=cluster.bootstrap_servers, topic=topic)
    production = Production(
        cluster,
        topic,
        lambda: min(sum(checkpointed(home, view, topic).values()) for view in VIEWS),
    )
    production.start()
    killed: list[Pipeline] = []
    broken = 0
    with pipelines(script, home, tmp_path) as start, closing(production):
        for kill in range(KILLS):
            script.write_text(pipeline_sql + (AT_FIRST if kill < KILLS / 2 else LATER))
            pipeline = start()
            killed.append(pipeline)
            if kill % AIMED_EVERY == AIMED_EVERY - 1:
                pipeline.await_running(first_batch=True)
                eventually(
                    lambda: queries_in_the_middle_of_a_batch(home),
                    "a batch has begun",
                    timeout=60,
                    pause=0.001,
                )
            else:
                early = moments.random() < EARLY
                pipeline.await_running(first_batch=not early)
                time.sleep(
                    moments.uniform(0, EARLY_S if early else LATE_S)
                )  # the moment is what is random here
                assert_group_is_not_ahead(cluster, home, topic)
            pipeline.kill(whole_group=kill % 2 == 0)
            assert_group_is_not_ahead(cluster, home, topic)
            broken += queries_in_the_middle_of_a_batch(home)
        script.write_text(pipeline_sql + LATER)
        produced = production.end()
        final = start(*UNTIL_CAUGHT_UP)
        killed.append(final)
        final.finish()

    print(f"{KILLS} kills, {broken} batches broken off, {produced} records")
    assert broken or KILLS < 5, "no kill fell into a batch: this has shown nothing"
    good = [number for number in range(produced) if number % BAD_EVERY]
    plain = table_of(home, "plain").to_pyarrow_table()
    assert sorted(plain["id"].to_pylist()) == good
    odd = table_of(home, "odd").to_pyarrow_table()
    assert sorted(odd["twice"].to_pylist()) == [2 * number for number in good if number % 2]
    joined = table_of(home, "joins").to_pyarrow_table()
    assert sorted(joined["id"].to_pylist()) == good, "it came while the others were being killed"
    counts = table_of(home, "counts").to_pyarrow_table().to_pylist()
    assert sum(row["n"] for row in counts) == len(good)
    assert not (home / "views" / "leaves").exists()
    sums = table_of(home, "sums").to_pyarrow_table().to_pylist()
    expected = {f"k{rest}": [number for number in good if number % 7 == rest] for rest in range(7)}
    assert {row["k"]: (row["n"], row["total"]) for row in sums} == {
        key: (len(numbers), sum(numbers)) for key, numbers in expected.items()
    }
    assert len(sums) == 7

    catalog = Catalog(home / "catalog.db")
    try:
        for view in (*VIEWS, "odd", "joins", "counts"):
            [totals] = catalog.totals(view=view)
            assert totals.records == produced
            assert totals.rejected == {"MalformedPayload": produced - len(good)}
    finally:
        catalog.close()
    ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
    assert cluster.committed(GROUP, topic) == checkpointed(home, "plain", topic) == ends
    assert checkpointed(home, "sums", topic) == ends
    for pipeline in killed:
        pipeline.await_nothing_left()
