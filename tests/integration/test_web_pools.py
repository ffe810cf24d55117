"""What the dashboard shows of a pool that runs in its process, and of a blackboard."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from boards import artifact, board, run
from pools import pool_on
from support import Cluster, unique
from waiting import eventually, until

from forebay.blackboard import Artifact, Orchestrator, RetryPolicy
from forebay.blackboard.artifact import ConsumptionRecord
from forebay.deadletter.desk_views import Selection
from forebay.errors import BadRequestError
from forebay.web.backend import Backend


def test_a_pool_shows_its_frontier_its_gaps_its_hot_keys_and_its_letter_which_is_replayed(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, ["bad"], key="sick", partition=0)
    cluster.produce(topic, ["wait"], key="hot", partition=0)
    cluster.produce(topic, [str(number) for number in range(5)], key="hot", partition=0)
    cluster.produce(topic, ["free"] * 3, key="cold", partition=0)
    pool = pool_on(cluster, topic, order="key", dead_letter_topic=f"{topic}-dlq", max_attempts=1)
    backend = Backend(tmp_path / "home", pool=pool)

    async def work() -> None:
        release = asyncio.Event()
        repaired = False

        async def handle(record: Any) -> None:
            if record.value == b"bad" and not repaired:
                raise ValueError("no good")
            if record.value == b"wait":
                await release.wait()

        await pool.start(handle)
        try:
            await until(lambda: pool.stats().completed >= 4, "all but the hot key is done")
            await until(lambda: pool.stats().partitions[0].frontier == 1, "that is committed")
            row = (await asyncio.to_thread(backend.pools))[0]
            assert (row.state, row.stats["dead_letters"]) == ("running", 1)
            part = row.partitions[0]
            assert (part.frontier, part.gaps) == (1, 6)
            assert part.beyond == 3
            assert [(key.key, key.waiting) for key in row.hot_keys] == [("hot", 5)]
            desk = backend.desk
            await until(lambda: desk.watched(), "its letters are looked at")
            await asyncio.to_thread(desk.refresh)
            (letter,) = (await asyncio.to_thread(desk.letters)).letters
            assert "no good" in letter.pattern
            repaired, done = True, pool.stats().completed
            chosen = Selection(letter.owner, ids=(letter.id,))
            job = await asyncio.to_thread(partial(desk.replay, chosen, actor="ann"))
            await until(lambda: job.status.state == "done", "it is sent again")
            assert job.status.sent == 1
            await until(lambda: pool.stats().completed == done + 1, "the pool has handled it")
            assert b"forebay_pool" in await asyncio.to_thread(backend.metrics)
        finally:
            release.set()
            await pool.stop()

    assert backend.pools()[0].stats == {}
    try:
        run(work())
    finally:
        backend.close()


@pytest.fixture
def shown(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Backend, dict[str, Any]]]:
    prefix = unique("board") + "."
    order = artifact(1, correlation_id="c-1")
    later = artifact(2, type="Invoice", produced_by="billing", correlation_id="c-1")

    async def fill() -> None:
        async with board(cluster, prefix) as store:
            await store.publish(order)
            await store.publish(artifact(5, id=order.id, version=2, correlation_id="c-1"))
            await store.publish(later)
            await store.record_consumptions([ConsumptionRecord(order.id, "billing", "r-1", "c-1")])

    run(fill())
    given = {"bootstrap_servers": cluster.bootstrap_servers, "topic_prefix": prefix, "create_topics": False}
    backend = Backend(tmp_path / "home", board=given)
    yield backend, {"order": str(order.id)}
    backend.close()


def test_a_board_shows_types_versions_a_timeline_and_its_agents(
    shown: tuple[Backend, dict[str, Any]],
) -> None:
    backend, ids = shown
    page = backend.board()
    assert page is not None
    assert page.error == ""
    assert page.types == {"Order": 1, "Invoice": 1}
    agents = {each.name: each for each in page.agents}
    assert (agents["billing"].consumed, agents["billing"].produced) == (1, 1)
    of_type = backend.board(type="Invoice")
    assert of_type is not None
    assert [each.type for each in of_type.artifacts] == ["Invoice"]
    versions = backend.board(artifact=ids["order"])
    assert versions is not None
    assert [each.version for each in versions.artifacts] == [2, 1]
    steps = [(each["what"], each["who"], each["artifact"]) for each in versions.timeline]
    assert sorted(steps) == [
        ("consumed", "billing", ids["order"]), ("published", "shop", ids["order"]), ("published", "shop", ids["order"]),
    ]  # fmt: skip
    timeline = backend.board(correlation="c-1")
    assert timeline is not None
    assert {(each["what"], each["who"]) for each in timeline.timeline} == {
        ("published", "shop"), ("published", "billing"), ("consumed", "billing"),
    }  # fmt: skip
    with pytest.raises(BadRequestError):
        backend.board(artifact="no id")
    eventually(lambda: backend.board() is not None, "it can be asked again")


def test_a_timeline_has_what_an_agent_failed_at_and_agents_have_their_group_s_lag(
    cluster: Cluster, tmp_path: Path
) -> None:
    prefix, order = unique("board") + ".", artifact(1, correlation_id="c-1")

    def broken(given: Artifact) -> None:
        raise KeyError("no such word")

    async def fail() -> None:
        async with board(cluster, prefix) as store:
            team = Orchestrator(
                store,
                retry=RetryPolicy(attempts=2, backoff_ms=20),
                commit_interval_ms=100,
                session_timeout_ms=6000,
            )
            team.subscribe("broken", "Order", broken)
            async with team:
                await store.publish(order)
                await until(lambda: team.stats.total("broken").dead, "it is given up")

    run(fail())
    given = {"bootstrap_servers": cluster.bootstrap_servers, "topic_prefix": prefix, "create_topics": False}
    backend, shy = (
        Backend(tmp_path / "a", board=given),
        Backend(tmp_path / "b", board=given, hide_payloads=True),
    )
    try:
        for page in (backend.board(artifact=str(order.id)), backend.board(correlation="c-1")):
            assert page is not None
            assert [(each["what"], each["who"]) for each in page.timeline] == [
                ("published", "shop"), ("retried", "broken"), ("became a letter", "broken"),
            ]  # fmt: skip
            assert "no such word" in page.timeline[-1]["detail"]
            (agent,) = [each for each in page.agents if each.name == "broken"]
            assert (agent.retries, agent.letters, agent.lag) == (1, 1, 0)
        hidden = shy.board(correlation="c-1")
        assert hidden is not None
        assert len(hidden.timeline) == 3
        assert "no such word" not in repr(hidden)
    finally:
        backend.close()
        shy.close()


def test_pool_run_serves_the_dashboard_of_its_pool(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, ["1", "2", "3"])
    (tmp_path / "work.py").write_text("def handle(record):\n    pass\n")
    command = [
        sys.executable, "-m", "forebay", "pool", "run", "work:handle", "--topic", topic, "--group", unique("group"),
        "--brokers", cluster.bootstrap_servers, "--ui", "--ui-port", "0", "--home", str(tmp_path / "home"),
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            words = next(line for line in process.stderr if "dashboard at" in line)
            url = f"{words.split()[-1]}/api/pools"
            asked = lambda: httpx.get(url, timeout=20, trust_env=False).json()  # noqa: E731
            eventually(lambda: asked()[0]["stats"].get("completed") == 3, "the pool's records are done")
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert process.returncode == 0
