"""A real Prometheus scrapes a pipeline, pools and agents that misbehave in every way at once: each alert fires.

The rules are those that users get, with minutes made seconds. The long form of `tests/unit/test_monitoring.py`, which holds
each rule to series that fire it and to series that do not, and every metric in a rule to what is exported. Two tables and
an index behave as on a full or a slow disk, which a test cannot have; all the rest is done to real brokers, groups and
handlers.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import prometheus
import pytest
import yaml
from boards import artifact, board
from pools import pool_on
from sessions import EVENTS, connect, create_source, event, events, name
from support import Cluster, unique
from waiting import eventually

import forebay
from forebay.blackboard import Artifact, Orchestrator, RetryPolicy
from forebay.devstack import DevStack
from forebay.pool import Record
from forebay.telemetry.server import MetricsServer

RULES = Path(forebay.__file__).parent / "telemetry/monitoring/forebay-alerts.yml"
COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"
POISON = '{"id": 1, "k"'
OWN_QUERY = "SELECT DISTINCT id FROM {}"  # Spark's alone: such a view has a query of its own
FIRES_S = 120  # all of them within 40 s on two idle cores


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def in_seconds(rules: str) -> str:
    """The rules with 1 s for each minute; only groups cannot rebalance so often, and keep a minute."""
    text = re.sub(r"\b(\d+)m\b", r"\1s", rules).replace("[1h]", "[60s]").replace(":30s]", ":1s]")
    return re.sub(r"(rebalances_total\[)10s\]", r"\g<1>60s]", text)


@contextmanager
def running_prometheus(folder: Path, targets: dict[str, list[str]]) -> Iterator[str]:
    """Its address. It scrapes and judges every second."""
    program, port = prometheus.program("prometheus"), free_port()
    (folder / "rules.yml").write_text(in_seconds(RULES.read_text()))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": each}]} for job, each in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
             "--storage.tsdb.path=data"], cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def firing(address: str) -> list[dict[str, str]]:
    try:
        with urllib.request.urlopen(f"{address}/api/v1/alerts", timeout=10) as answer:
            found = json.load(answer)["data"]["alerts"]
    except OSError:
        return []  # it is being started
    return [each["labels"] for each in found if each["state"] == "firing"]


class Pipeline:
    """Sources and views, each with a fault of its own; `feed()` goes on writing to those that need it."""

    def __init__(
        self, db: forebay.Session, cluster: Cluster, mortal: Cluster, patch: pytest.MonkeyPatch
    ) -> None:
        self.db, self.cluster, self.mortal, self._patch = db, cluster, mortal, patch
        self.free = threading.Event()  # slow tables wait for it
        self.topics: dict[str, str] = {}
        self.fed = 0

    def source(self, what: str, query: str = "SELECT id FROM {}", **more: Any) -> str:
        """A source of this name with a view v_<name>; returns its topic."""
        cluster = more.pop("on", self.cluster)
        topic = cluster.make_topic(more.pop("partitions", 1))
        self.topics[what] = topic
        policy, columns = more.pop("policy", ""), more.pop("columns", COLUMNS)
        cluster.produce(topic, more.pop("first", events(range(5))))
        self.db.execute(
            f"{create_source(cluster, what, topic, columns, group_id=name(what), **more)} {policy}"
        )
        self.db.execute(f"CREATE MATERIALIZED VIEW v_{what} AS {query.format(what)}")
        return topic

    def build(self) -> None:
        self.source("away", on=self.mortal)
        self.source("failing", policy="ON ERROR = 'fail'", first=[event(1), POISON])
        policy = "ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{}', max_errors_per_second = 5)"
        self.source("poisoned", policy=policy.format(unique("letters")))
        # Event times an hour apart: the slow partition holds the other back.
        topic = self.source("uneven", columns=EVENTS, partitions=2, first=[])
        self.cluster.produce(topic, [event(1)], partition=0)
        self.cluster.produce(topic, [event(3600)], partition=1)
        self.source("silent", first=events(range(10)))
        self.source("paused")
        self.source("shared", group_mode="shared", partitions=2)
        self.source("full", OWN_QUERY)
        self._slow_down("full", self._full)
        self.source("held", OWN_QUERY, backpressure_budget_records=100, stall_timeout_ms=1000)
        self._slow_down("held", self._wait)

    def _slow_down(self, what: str, first: Callable[[], None]) -> None:
        table = self.db._views.running[f"v_{what}"].table
        merge = table.merge
        self._patch.setattr(table, "merge", lambda *args: (first(), merge(*args))[1])

    def _wait(self) -> None:
        self.free.wait(120)

    def _full(self) -> None:
        if not self.free.is_set():
            _disk_is_full()

    def misbehave(self) -> None:
        self.cluster.produce(self.topics["silent"], events(range(10, 500)))
        self.cluster.produce(self.topics["full"], events(range(5, 10)))
        self.db.execute("PAUSE SOURCE paused; PAUSE SOURCE held")
        hour_ago = int((time.time() - 3600) * 1000)
        self.cluster.produce(self.topics["paused"], events(range(9)), timestamp=hour_ago)
        self.cluster.produce(self.topics["held"], events(range(5, 400)))
        self.db.execute("RESUME SOURCE held")
        self.db.execute("CREATE MATERIALIZED VIEW v_quick AS SELECT id FROM held")

    def feed(self) -> None:
        """Poison, and a record for the group whose offsets cannot be committed."""
        self.fed += 1
        self.cluster.produce(self.topics["poisoned"], [*events(range(20)), *[POISON] * 10])
        if "blocked" in self.topics:
            self.cluster.produce(self.topics["blocked"], [event(self.fed)])


@contextmanager
def member_of(cluster: Cluster, group: str, topic: str) -> Iterator[None]:
    """A consumer that joins somebody's group: offsets of others are refused from then on."""
    member = cluster.consumer(group)
    try:
        member.subscribe([topic])
        eventually(lambda: member.poll(0.1) is None and member.assignment(), "the member has joined")
        yield
    finally:
        member.close()


def come_and_go(cluster: Cluster, group: str, topic: str, strategy: str, stop: threading.Event) -> None:
    """Join a group and leave it, again and again."""
    while not stop.is_set():
        member = cluster.consumer(group, **{"partition.assignment.strategy": strategy})
        member.subscribe([topic])
        joined = time.monotonic() + 10
        while not stop.is_set() and not member.assignment() and time.monotonic() < joined:
            member.poll(0.1)
        member.close()


class Crew:
    """Pools and an agent in an event loop of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.new_event_loop()
        self.stopping = asyncio.Event()
        self.ready = threading.Event()
        self.targets: list[str] = []
        self.busy_group, self.busy_topic = unique("busy"), cluster.make_topic(2)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._work(),))
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self.stopping.set)
        self._thread.join(60)
        self._loop.close()

    async def _work(self) -> None:
        cluster, topics = self._cluster, [self._cluster.make_topic(1) for _ in range(3)]
        cluster.produce(topics[0], [b"%d" % n for n in range(2000)])
        cluster.produce(topics[1], [b"%d" % n for n in range(20)])
        cluster.produce(topics[2], [b"%d" % n for n in range(100_200)])

        async def fails(record: Record) -> None:
            await asyncio.sleep(0.02)  # so that letters come for as long as somebody looks
            raise ValueError("bad")

        async def fails_once(record: Record) -> None:
            if record.value == b"7":
                raise ValueError("bad")

        async def waits(record: Record) -> None:
            await self.stopping.wait()

        common: dict[str, Any] = {"shutdown_timeout_ms": 500, "workers": 1}
        pools = [
            (pool_on(cluster, topics[0], dead_letter_topic=unique("dlq"), max_attempts=1, **common), fails),
            (pool_on(cluster, topics[1], max_attempts=1, **common), fails_once),
            (pool_on(cluster, topics[2], **common), waits),
            (pool_on(cluster, self.busy_topic, group_id=self.busy_group, **common), waits),
        ]
        collectors = [pool.collector() for pool, _ in pools]
        async with board(self._cluster) as store, board(self._cluster) as stuck:
            team = Orchestrator(store, unique("agents"), retry=RetryPolicy(attempts=1, backoff_ms=1))
            team.subscribe("answering", "Order", _gives_up)
            async with team:
                for pool, handler in pools:
                    await pool.start(handler)
                with ExitStack() as stack:
                    for each in [*collectors, team.collector(), stuck.collector()]:
                        server = MetricsServer(each, 0)
                        stack.callback(server.close)
                        self.targets.append(f"127.0.0.1:{server.port}")
                    stuck._feed._take = _disk_is_full  # type: ignore[method-assign]
                    self.ready.set()
                    while not self.stopping.is_set():
                        await store.publish(artifact(1))
                        await asyncio.sleep(1)
                for pool, _ in pools:
                    await pool.stop()


def _disk_is_full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _gives_up(given: Artifact) -> Artifact:
    raise ValueError("never")


@pytest.mark.long
def test_each_alert_fires_on_a_real_pipeline_that_misbehaves(
    tmp_path: Path, cluster: Cluster, mortal_broker: DevStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    prometheus.program("prometheus")
    mortal = Cluster(mortal_broker)
    wanted = {
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    }
    stop = threading.Event()
    with ExitStack() as stack:
        crew = Crew(cluster)
        stack.callback(crew.stop)
        db = stack.enter_context(connect(tmp_path / "home"))
        pipeline = Pipeline(db, cluster, mortal, monkeypatch)
        stack.callback(pipeline.free.set)
        server = MetricsServer(db.collector(), 0)
        stack.callback(server.close)
        assert crew.ready.wait(60)
        targets = {
            "forebay": [f"127.0.0.1:{server.port}", *crew.targets],
            "forebay-gone": [f"127.0.0.1:{free_port()}"],
        }
        address = stack.enter_context(running_prometheus(tmp_path, targets))
        pipeline.build()
        topic = pipeline.source("blocked")
        blocked = next(each.group for key, each in db._sources.connected().items() if key == "blocked")
        shared = next(each.group for key, each in db._sources.connected().items() if key == "shared")
        stack.enter_context(member_of(cluster, str(blocked), topic))
        for group, busy, strategy in (
            (str(shared), pipeline.topics["shared"], "cooperative-sticky"),
            (crew.busy_group, crew.busy_topic, "cooperative-sticky"),
        ):
            thread = threading.Thread(target=come_and_go, args=(cluster, group, busy, strategy, stop))
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        pipeline.misbehave()
        mortal_broker.kill_broker()
        stack.callback(mortal_broker.start_broker)  # or the session waits for it when it is closed
        found: dict[str, dict[str, str]] = {}
        deadline = time.monotonic() + FIRES_S
        while wanted - found.keys() and time.monotonic() < deadline:
            pipeline.feed()
            for labels in firing(address):
                found.setdefault(labels["alertname"], labels)
            time.sleep(0.2)  # Prometheus looks once a second
        text = urllib.request.urlopen(server.address, timeout=10).read()
        assert wanted - found.keys() == set()
    checked = subprocess.run(
        [prometheus.program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    assert found["ForebayViewFailed"]["view"] == "v_failing"
    assert found["ForebayWatermarkHeldBack"]["source"] == "uneven"
    assert found["ForebayNoRecords"]["source"] in ("silent", "failing")
