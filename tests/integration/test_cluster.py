"""Forebay on a real Spark cluster: a master and workers of one core, which do not see the driver's home.

They share the environment with the driver, and nothing else: tables are on a real S3 server. Where there is none, they share the
folder of the tables, too.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable
from s3 import S3Server, s3_server, why_not
from scripts.spark_cluster import SMALL, SPARK_HOME, Mounts, SparkCluster, bare_python, can_hide
from support import Cluster, unique
from waiting import eventually

import forebay
from forebay.deadletter.letter import Letter
from forebay.views.paths import paths_of

HOMES = ("killed", "slow", "other", "bare", "packed")
VIEWS = ("plain", "sums", "once")
BAD_EVERY = 50
PATIENCE_S = 150  # a busy machine, and executors that have to start
SOURCE = """
CREATE SOURCE numbers (id BIGINT NOT NULL, k STRING NOT NULL, v BIGINT NOT NULL)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = '{topic}', max_records_per_batch = 1000)
FORMAT JSON ON ERROR = dead_letter WITH (dead_letter_topic = '{topic}-letters');
CREATE MATERIALIZED VIEW plain AS SELECT id, v * 2 AS twice FROM numbers;
"""
PIPELINE = f"""{SOURCE}
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM numbers GROUP BY k;
CREATE MATERIALIZED VIEW once AS SELECT DISTINCT id FROM numbers;
"""  # the last needs Spark's own state, which tasks keep


class Home:
    """Of a driver. Workers see nothing of it but the tables, where they are in it."""

    def __init__(self, root: Path, s3: S3Server | None) -> None:
        self.root = root
        self._storage = [] if s3 is None else ["--storage", s3.url(root.name)]
        self.checkpoint.mkdir(parents=True)

    @property
    def checkpoint(self) -> Path:
        """Of the view whose state Spark keeps."""
        return self.root / "views" / "once" / "checkpoint"

    @property
    def flags(self) -> list[str]:
        """Of a command that runs on it."""
        return ["--home", str(self.root), *self._storage]

    def rows(self, view: str) -> list[dict[str, Any]]:
        return DeltaTable(str(paths_of(self.root, view).table)).to_pyarrow_table().to_pylist()


class Machines:
    """A cluster, and drivers on it."""

    def __init__(self, folder: Path, s3: S3Server | None) -> None:
        self.folder = folder
        self.shares_tables = s3 is None
        (folder / "driver").mkdir()
        self.homes = {name: Home(folder / "driver" / name, s3) for name in HOMES}
        shared = self.homes.values() if self.shares_tables else ()
        self.mounts = Mounts(
            hidden=[folder / "driver"],
            shown=[home.root / "views" for home in shared],
            hidden_within=[home.checkpoint for home in shared],
        )
        self.spark = SparkCluster(folder / "cluster", mounts=self.mounts)
        self.drivers: list[Driver] = []

    def run(
        self,
        home: str,
        cluster: Cluster,
        topic: str,
        *arguments: str,
        pipeline: str = PIPELINE,
        **environment: str,
    ) -> Driver:
        script = self.folder / "driver" / f"{topic}.sql"
        script.write_text(pipeline.format(brokers=cluster.bootstrap_servers, topic=topic))
        flags = [
            str(script),
            *self.homes[home].flags,
            "--master",
            self.spark.url,
            "--conf",
            f"spark.executor.extraJavaOptions={SMALL}",
            *arguments,
        ]
        self.drivers.append(Driver(self.folder / f"driver-{len(self.drivers)}.log", flags, environment))
        return self.drivers[-1]

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()
        self.spark.stop()


class Driver:
    """`forebay run` in a process of its own."""

    def __init__(self, log: Path, flags: list[str], environment: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forebay", "run", *flags],
                stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **environment},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def metrics(self) -> dict[str, float]:
        """Each metric with its labels, as Prometheus would see it; nothing before they are served."""
        assert self.process.poll() is None, self.said
        address = re.search(r"metrics at (\S+)", self.said)
        if address is None:
            return {}
        try:
            with urllib.request.urlopen(address[1], timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except (ConnectionError, urllib.error.URLError):  # it is about to end
            return {}
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }

    def counted(self, metric: str) -> list[float]:
        """Of each view; zeros before there is any."""
        found = self.metrics()
        return [found.get(f'{metric}_total{{view="{view}"}}', 0) for view in VIEWS]

    def await_read(self, records: int) -> None:
        """Until every view has read so many."""
        eventually(
            lambda: min(self.counted("forebay_query_records")) >= records,
            f"{records} are read",
            PATIENCE_S,
            0.2,
        )

    def ends(self, signalled: bool = False) -> int:
        if signalled:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def send(cluster: Cluster, topic: str, first: int, end: int) -> None:
    cluster.produce(topic, map(record, range(first, end)))


def record(id: int) -> str:
    return '{"id":' if id % BAD_EVERY == 0 else json.dumps({"id": id, "k": f"k{id % 7}", "v": id})


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with ExitStack() as stack:
        s3 = None if why_not() else stack.enter_context(s3_server(tmp_path_factory.mktemp("s3")))
        made = Machines(tmp_path_factory.mktemp("machines"), s3)
        stack.callback(made.close)
        made.spark.start(workers=2)
        # After the workers: what these need to know of the store, they hear from the driver.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for key, value in s3.environment.items() if s3 else ():
            patch.setenv(key, value)
        yield made


def assert_account_adds_up(cluster: Cluster, home: Home, topic: str, produced: int) -> None:
    """What was produced is delivered once or is a letter, in every view, and the group is at the end."""
    good = [id for id in range(produced) if id % BAD_EVERY]
    assert sorted(row["id"] for row in home.rows("plain")) == good
    assert all(row["twice"] == row["id"] * 2 for row in home.rows("plain"))
    assert sorted(row["id"] for row in home.rows("once")) == good
    sums = {row["k"]: (row["n"], row["total"]) for row in home.rows("sums")}
    of_key = {f"k{rest}": [id for id in good if id % 7 == rest] for rest in range(7)}
    assert sums == {k: (len(ids), sum(ids)) for k, ids in of_key.items()}
    assert len({_place(each) for each in cluster.letters(f"{topic}-letters")}) == produced - len(good)
    assert group_is_at_the_end(cluster, topic)


def group_is_at_the_end(cluster: Cluster, topic: str) -> bool:
    ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
    return cluster.committed(topic, topic) == ends


def _place(letter: Letter) -> tuple[Any, ...]:
    return letter.topic, letter.partition, letter.offset


def test_nothing_is_lost_or_twice_though_an_executor_and_a_worker_are_killed(
    machines: Machines, cluster: Cluster
) -> None:
    topic = cluster.make_topic(2, name=unique("killed"))
    driver = machines.run("killed", cluster, topic, "--metrics-port", "0")
    send(cluster, topic, 0, 1000)
    driver.await_read(1000)
    send(cluster, topic, 1000, 3000)
    machines.spark.kill_executor(0)
    driver.await_read(3000)
    send(cluster, topic, 3000, 5000)
    machines.spark.kill_worker(1)
    machines.spark.add_worker()  # whose executor registers late
    send(cluster, topic, 5000, 6000)
    home = machines.homes["killed"]
    if can_hide():
        if machines.shares_tables:
            assert machines.spark.seen(0, home.root) == ["views"]
            assert machines.spark.seen(0, home.checkpoint) == []
        else:
            assert machines.spark.seen(0, home.root.parent) == []
    eventually(lambda: group_is_at_the_end(cluster, topic), "the group is at the end", PATIENCE_S, 0.2)
    assert driver.counted("forebay_query_rejected") == [6000 / BAD_EVERY] * len(VIEWS)
    assert driver.ends(signalled=True) == 0, driver.said
    assert_account_adds_up(cluster, home, topic, 6000)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.task.duration.threshold": "500ms",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@pytest.mark.long
def test_no_row_is_there_twice_when_tasks_are_and_executors_come_as_they_are_needed(
    machines: Machines, cluster: Cluster
) -> None:
    topic = cluster.make_topic(2, name=unique("slow"))
    conf = [each for key, value in SPECULATION.items() for each in ("--conf", f"{key}={value}")]
    driver = machines.run("slow", cluster, topic, "--metrics-port", "0", *conf, FOREBAY_SPARK_LOG="INFO")
    send(cluster, topic, 0, 1000)
    driver.await_read(1000)
    working = eventually(
        lambda: [each for each in machines.spark.running if machines.spark.pythons(each)], "tasks run"
    )
    machines.spark.freeze(working[0])  # what it is given, the other one is given as well
    try:
        send(cluster, topic, 1000, 4000)
        eventually(lambda: group_is_at_the_end(cluster, topic), "it gets on", PATIENCE_S, 0.2)
    finally:
        machines.spark.thaw(working[0])
    assert driver.ends(signalled=True) == 0, driver.said
    assert "as speculatable" in driver.said
    assert_account_adds_up(cluster, machines.homes["slow"], topic, 4000)


@contextmanager
def another_worker(machines: Machines, mounts: Mounts, **environment: str) -> Iterator[list[str]]:
    """A worker that is not like the others, and the flags of a driver that gets executors on no other."""
    number = machines.spark.add_worker(mounts=mounts, environment=environment, memory="2g")
    try:
        flags = ["--conf", "spark.executor.memory=1100m", "--conf", "spark.task.maxFailures=1"]
        yield ["--until-caught-up", "--timeout", str(PATIENCE_S), *flags]
    finally:
        machines.spark.kill_worker(number)


@pytest.mark.skipif(not can_hide(), reason="this machine has no mount namespaces")
def test_a_worker_of_another_version_is_refused_by_name(machines: Machines, cluster: Cluster) -> None:
    topic = cluster.make_topic(1, name=unique("other"))
    send(cluster, topic, 0, 10)
    ours = Path(forebay.__file__).with_name("pace.py")
    theirs = machines.folder / "pace.py"
    theirs.write_text(ours.read_text() + "# as it was before\n")
    mounts = replace(machines.mounts, replaced={ours: theirs})
    with another_worker(machines, mounts, PYTHONDONTWRITEBYTECODE="1") as flags:
        driver = machines.run("other", cluster, topic, *flags, pipeline=SOURCE)
        assert driver.ends() == 1
    assert re.search(r"FB4030.* is not used: it has forebay \S+, the driver ", driver.said), driver.said
    assert "forebay pack" in driver.said
    assert max(cluster.committed(topic, topic).values()) <= 0  # nothing was read


@pytest.mark.long
def test_a_worker_without_forebay_is_an_error_that_names_the_remedy(
    machines: Machines, cluster: Cluster
) -> None:
    topic = cluster.make_topic(1, name=unique("bare"))
    send(cluster, topic, 0, 10)
    python = bare_python(machines.folder / "bare")
    path = f"{python.parent}:{os.environ['PATH']}"
    with another_worker(machines, machines.mounts, PATH=path) as flags:
        driver = machines.run("bare", cluster, topic, *flags, pipeline=SOURCE, PYSPARK_PYTHON=python.name)
        assert driver.ends() == 1
    assert "FB4031" in driver.said, driver.said
    assert "forebay pack" in driver.said


@pytest.mark.skipif(not os.environ.get("FOREBAY_PACK"), reason="takes a minute: FOREBAY_PACK=1, make chaos")
@pytest.mark.skipif(not can_hide(), reason="this machine has no mount namespaces")
def test_workers_with_nothing_but_the_archive_do_all(machines: Machines, cluster: Cluster) -> None:
    topic = cluster.make_topic(2, name=unique("packed"))
    send(cluster, topic, 0, 1000)
    archive = machines.folder / "driver" / "forebay-env.tar.gz"
    subprocess.run([sys.executable, "-m", "forebay", "pack", "-o", str(archive)], check=True)
    mounts = replace(
        machines.mounts,
        hidden=[*machines.mounts.hidden, Path(forebay.__file__).parent, Path(pyarrow.__file__).parent.parent],
        shown=[*machines.mounts.shown, SPARK_HOME],
    )
    path = f"{bare_python(machines.folder / 'packed').parent}:{os.environ['PATH']}"
    with another_worker(machines, mounts, PATH=path) as flags:
        driver = machines.run("packed", cluster, topic, *flags, "--archive", str(archive))
        assert driver.ends() == 0, driver.said
    assert_account_adds_up(cluster, machines.homes["packed"], topic, 1000)
