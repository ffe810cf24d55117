"""Forebay on a real YARN: a resource manager and a node manager, which starts the executors."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripts.yarn_cluster import yarn_cluster
from support import Cluster

import forebay
from forebay.errors import DownloadError

RECORDS, BAD_EVERY = 8_000, 100
CONF = {
    "spark.executor.instances": "1",
    "spark.executor.memory": "600m",
    "spark.yarn.am.memory": "400m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_pipeline_runs_on_yarn_with_nothing_changed_but_the_master(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.make_topic()
    good = [b'{"id": %d, "k": "k%d"}' % (n, n % 7) for n in range(RECORDS) if n % BAD_EVERY]
    bad = [b'{"id": %d' % n for n in range(0, RECORDS, BAD_EVERY)]
    cluster.produce(topic, [*good, *bad])
    with ExitStack() as held:
        try:
            yarn = held.enter_context(yarn_cluster(tmp_path / "yarn"))
        except DownloadError as error:
            pytest.skip(str(error))
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
        with forebay.connect(tmp_path / "home", master="yarn", spark_conf=CONF) as db:
            db.execute(
                f"""
                CREATE SOURCE s (id BIGINT NOT NULL, k STRING NOT NULL)
                FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{topic}', group_id = '{topic}')
                FORMAT JSON ON ERROR = dead_letter WITH (dead_letter_topic = '{topic}-letters');
                CREATE MATERIALIZED VIEW plain AS SELECT id FROM s;
                CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n FROM s GROUP BY k;
                CREATE MATERIALIZED VIEW once AS SELECT DISTINCT k FROM s;
                """
            )
            db.wait(until_caught_up=True, timeout=300)
            assert db.spark.sparkContext.master == "yarn"
            ids = [row[0] for row in db.sql("SELECT id FROM plain").fetchall()]
            assert sorted(ids) == sorted(json.loads(value)["id"] for value in good)
            assert sum(row[0] for row in db.sql("SELECT n FROM sums").fetchall()) == len(good)
            assert len(db.sql("SELECT k FROM once").fetchall()) == 7
            [source] = db.sources()
            assert source.errors_total == len(bad)
            assert all(each.lag == 0 for each in db.lag())
