"""Checkpoints in a real HDFS, by Spark's own client: every record once, whoever is killed, whatever is away for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hdfs import HdfsServer, hdfs_server
from sessions import EVENTS, caught_up, connect, create_source, event, events, name, rows
from support import Cluster
from waiting import eventually

import forebay
from forebay.errors import OptionValueError, StorageError
from forebay.runtime.checkpoint_places import checkpoint_of
from forebay.runtime.hadoop_path import HadoopPath
from forebay.views.paths import paths_of


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


def pipeline(cluster: Cluster, source: str, topic: str) -> str:
    """A view that tasks serve, and one with a query of its own, whose state Spark keeps in its checkpoint."""
    made = create_source(
        cluster, source, topic, EVENTS, auto_offset_reset="earliest", max_records_per_batch=200
    )
    return (
        f"{made};\nCREATE MATERIALIZED VIEW {source}_v AS SELECT id FROM {source};\n"
        f"CREATE MATERIALIZED VIEW {source}_d AS SELECT DISTINCT id FROM {source};\n"
    )


def checkpoints_in(home: Path, source: str) -> list[str]:
    """Where the read for all views, and the view with a query of its own, have theirs."""
    found = (
        checkpoint_of(home / "sources" / source / "read"),
        checkpoint_of(paths_of(home, f"{source}_d").root),
    )
    assert all(isinstance(each, HadoopPath) for each in found)
    return [str(each) for each in found]


def ids(db: forebay.Session, view: str) -> list[int]:
    return sorted(row[0] for row in rows(db, f"SELECT id FROM {view}"))


def test_what_is_no_place_for_checkpoints_or_tables_is_refused_by_name(tmp_path: Path) -> None:
    for place in ("/mnt/lake", "s3://lake/x", "hdfs://user:secret@host/x"):
        with pytest.raises(OptionValueError, match="place for checkpoints") as caught:
            connect(tmp_path / "home", checkpoints=place)
        assert "secret" not in str(caught.value) or "no user" in str(caught.value)
    with pytest.raises(OptionValueError, match="no place for tables") as refused:
        connect(tmp_path / "home", storage="hdfs://127.0.0.1:8020/lake")
    assert "--checkpoints" in refused.value.remedy


def test_a_view_goes_on_where_its_checkpoint_in_hdfs_stands_and_dropping_it_leaves_nothing(
    cluster: Cluster, hdfs: HdfsServer, tmp_path: Path
) -> None:
    topic, source, home = cluster.make_topic(2), name("hdfs"), tmp_path / "home"
    cluster.produce(topic, events(range(100)))
    with connect(home, checkpoints=hdfs.url("once")) as db:
        db.execute(pipeline(cluster, source, topic))
        caught_up(db)
        first = checkpoints_in(home, source)
        assert all(each.startswith(hdfs.url("once")) for each in first)
    assert not list(home.glob("**/checkpoint/metadata"))
    cluster.produce(topic, events(range(100, 200)))
    # Without the setting, or with another one: a home remembers where the checkpoint is.
    for more in ({}, {"checkpoints": hdfs.url("elsewhere")}):
        with connect(home, **more) as db:
            db.start_all()
            caught_up(db)
            assert checkpoints_in(home, source) == first
            for view in (f"{source}_v", f"{source}_d"):
                assert ids(db, view) == list(range(200))
    with connect(home) as db:
        db.start_all()
        for view in (f"{source}_v", f"{source}_d"):
            db.execute(f"DROP MATERIALIZED VIEW {view}")
        assert list(HadoopPath(hdfs.url("once")).iterdir()) == []


def run(script: Path, home: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "forebay", "run", str(script), "--home", str(home), "--master", "local[2]", *more],
            stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


@pytest.mark.timeout(300)
def test_every_record_is_there_once_when_a_driver_with_its_checkpoint_in_hdfs_is_killed(
    cluster: Cluster, hdfs: HdfsServer, tmp_path: Path
) -> None:
    topic, source, home = cluster.make_topic(2), name("hdfs"), tmp_path / "home"
    script, log = tmp_path / "p.sql", tmp_path / "log"
    script.write_text(pipeline(cluster, source, topic))
    cluster.produce(topic, events(range(3_000)))
    table = paths_of(home, f"{source}_v").root / "table" / "_delta_log"
    for least in (2, 5):
        driver = run(script, home, log, "--checkpoints", hdfs.url("killed"))
        try:
            eventually(
                lambda least=least: len(list(table.glob("*.json"))) > least,
                f"it has batches: {log}",
                timeout=120,
            )
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(30)
    ended = run(script, home, log, "--until-caught-up", "--timeout", "150")
    assert ended.wait(200) == 0, log.read_text()
    with connect(home) as db:
        for view in (f"{source}_v", f"{source}_d"):
            twice = [id for id, count in Counter(ids(db, view)).items() if count > 1]
            assert (twice, len(ids(db, view))) == ([], 3_000)
    assert sum(cluster.committed(source, topic).values()) == 3_000


@pytest.mark.timeout(300)
def test_views_wait_while_hdfs_is_away_and_go_on_when_it_is_back(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    topic, source, home = cluster.make_topic(2), name("hdfs"), tmp_path / "home"
    cluster.produce(topic, events(range(100)))
    with (
        hdfs_server(tmp_path_factory.mktemp("away")) as server,
        connect(home, checkpoints=server.url("away")) as db,
    ):
        db.execute(pipeline(cluster, source, topic))
        caught_up(db)
        server.stop()
        cluster.produce(topic, [event(100)])

        def retrying() -> bool:
            states = {status.view: status for status in db.queries()}
            return all(str(each.state) == "retrying" and "FB4025" in each.message for each in states.values())

        eventually(retrying, "both wait", timeout=90)
        with pytest.raises(StorageError, match="hdfs://"):
            db.execute(f"CREATE MATERIALIZED VIEW {source}_n AS SELECT DISTINCT k FROM {source}")
        server.start()
        caught_up(db)
        for view in (f"{source}_v", f"{source}_d"):
            assert ids(db, view) == list(range(101))
