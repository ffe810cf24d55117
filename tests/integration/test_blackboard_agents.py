"""Agents on a real broker: each artifact is handled once by each agent that wants it, whatever happens."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from boards import artifact, board, run
from confluent_kafka import TopicPartition
from support import Cluster, unique
from typer.testing import CliRunner
from waiting import until

from forebay.blackboard import (
    Artifact,
    FilterConfig,
    KafkaBlackboardStore,
    LagMonitor,
    Orchestrator,
    RetryPolicy,
    replay,
)
from forebay.cli.board import board_app
from forebay.errors import BlackboardError, UnknownObjectError

MODES = pytest.mark.parametrize("transactions", [False, True], ids=["at-least-once", "exactly-once"])
QUICK = {"commit_interval_ms": 100, "session_timeout_ms": 6000}


def agents(store: KafkaBlackboardStore, group: str = "", **more: Any) -> Orchestrator:
    return Orchestrator(store, group or unique("agents"), **{**QUICK, **more})


def reply(given: Artifact) -> Artifact:
    return Artifact("Reply", {"to": given.payload["n"]}, "answering")


async def replies(store: KafkaBlackboardStore) -> list[int]:
    found = await store.list_by_type("Reply", consistency="latest")
    return [each.payload["to"] for each in found]


@MODES
def test_several_processes_share_the_artifacts_and_each_is_answered_once_in_the_order_of_its_key(
    cluster: Cluster, transactions: bool
) -> None:
    prefix, group, count = unique("board") + ".", unique("agents"), 60

    async def work() -> None:
        seen: list[tuple[str, int]] = []

        async def answer(given: Artifact) -> Artifact:
            await asyncio.sleep(0)
            seen.append((str(given.correlation_id), given.payload["n"]))
            return reply(given)

        async with board(cluster, prefix, transactions=transactions) as store:
            for n in range(count):
                await store.publish(artifact(n, correlation_id=f"c{n % 6}"))
            async with board(cluster, prefix, transactions=transactions) as second:
                teams = [agents(each, group) for each in (store, second)]
                for team in teams:
                    team.subscribe("answering", {"Order"}, answer)
                async with teams[0], teams[1]:
                    await until(lambda: _all(replies(store), count), "all are answered")
            assert sorted(await replies(store)) == list(range(count))
            assert Counter(n for _, n in seen) == dict.fromkeys(range(count), 1)
            for key in {key for key, _ in seen}:
                of_key = [n for each, n in seen if each == key]
                assert of_key == sorted(of_key)
            _, total = await store.query_artifacts(FilterConfig(type_names={"Reply"}, correlation_id="c1"))
            assert total == count // 6  # what is made belongs to what it was made from
            history = await store.agent_history_summary("answering", consistency="latest")
            assert (history["produced"]["total"], history["consumed"]["total"]) == (count, count)

    run(work())


def looked_at(team: Orchestrator) -> int:
    return sum(each.handled + each.duplicates for each in team.stats.agents.values())


async def _all(listed: Any, count: int) -> bool:
    return len(await listed) >= count


@MODES
def test_an_agent_is_not_run_again_for_what_it_is_done_with_though_the_log_is_read_again(
    cluster: Cluster, transactions: bool
) -> None:
    group = unique("agents")

    async def work() -> None:
        ran: list[str] = []
        async with board(cluster, transactions=transactions) as store:
            sent = [artifact(n) for n in range(5)]
            for each in sent:
                await store.publish(each)
            for _ in range(2):
                team = agents(store, group)
                team.subscribe("first", "Order", lambda given: ran.append("first"))
                team.subscribe("second", "*", lambda given: ran.append("second"))
                async with team:
                    await until(lambda team=team: looked_at(team) >= 10, "all are looked at")
                await store.publish(sent[0])  # the same artifact once more is the same artifact
                cluster.commit(
                    group, store.topics.artifacts, {0: 0, 1: 0}
                )  # as if nothing had been committed
            assert Counter(ran) == {"first": 5, "second": 5}

    run(work())


@MODES
def test_an_agent_that_fails_is_tried_again_after_a_while_and_others_are_not(
    cluster: Cluster, transactions: bool
) -> None:
    async def work() -> None:
        tried: list[float] = []
        fine: list[int] = []

        def shaky(given: Artifact) -> Artifact:
            tried.append(time.time())
            if len(tried) < 3:
                raise ValueError("not yet")
            return reply(given)

        async with board(cluster, transactions=transactions) as store:
            team = agents(store, retry=RetryPolicy(attempts=4, backoff_ms=200))
            team.subscribe("shaky", "Order", shaky)
            team.subscribe("fine", "Order", lambda given: fine.append(given.payload["n"]))
            async with team:
                await store.publish(artifact(7))
                await until(lambda: _all(replies(store), 1), "the third attempt")
            assert len(tried) == 3
            assert tried[1] - tried[0] >= 0.2
            assert tried[2] - tried[1] >= 0.4
            assert fine == [7]
            stats = team.stats.total("shaky")
            assert (stats.handled, stats.errors, stats.retries, stats.dead) == (1, 2, 2, 0)

    run(work())


@MODES
def test_what_an_agent_cannot_do_becomes_its_dead_letter_and_can_be_replayed_to_it_alone(
    cluster: Cluster, transactions: bool
) -> None:
    async def work() -> None:
        broken, ran = True, Counter[str]()

        def poisoned(given: Artifact) -> Artifact | None:
            ran["poisoned"] += 1
            if broken and given.payload["n"] == 13:
                raise KeyError("no such word")
            return reply(given)

        async with board(cluster, transactions=transactions) as store:
            team = agents(store, retry=RetryPolicy(attempts=2, backoff_ms=50))
            team.subscribe("poisoned", "Order", poisoned)
            team.subscribe("other", "Order", lambda given: ran.update(["other"]))
            bad = artifact(13, correlation_id="c")
            async with team:
                await store.publish(bad)
                await store.publish(artifact(1, correlation_id="c"))
                await until(lambda: team.stats.total("poisoned").dead, "it is given up")
                await until(lambda: _all(replies(store), 1), "the next one is not held up")
                topic = store.topics.dlq("poisoned")
                [letter] = await until(lambda: asyncio.to_thread(cluster.letters, topic), "the letter")
                assert (letter.source, letter.kind, letter.topic) == (
                    "poisoned",
                    "KeyError",
                    store.topics.artifacts,
                )
                assert "attempt 2" in letter.message
                assert b'"n":13' in (letter.value or b"")
                assert ran == {"poisoned": 3, "other": 2}

                broken = False
                # What `forebay dlq replay` sends: the record as it was, with the letter's own headers.
                headers = [*letter.headers, ("forebay.replay.id", b"r1")]
                cluster.produce(letter.topic, [letter.value], key=letter.key, headers=headers)
                await until(lambda: _all(replies(store), 2), "it is answered now")
                assert ran == {"poisoned": 4, "other": 2}

    run(work())


@MODES
def test_a_replay_by_time_or_correlation_runs_one_agent_once_more(
    cluster: Cluster, transactions: bool
) -> None:
    async def work() -> None:
        ran: list[int] = []
        async with board(cluster, transactions=transactions) as store:
            team = agents(store)
            team.subscribe("counting", "Order", lambda given: ran.append(given.payload["n"]))
            team.subscribe("other", "Order", lambda given: None)
            async with team:
                for n in range(6):
                    await store.publish(artifact(n, correlation_id=f"c{n % 2}"))
                await until(lambda: len(ran) == 6, "all have run")
                middle = datetime.now(UTC)
                await store.publish(artifact(6, correlation_id="c0"))
                await until(lambda: len(ran) == 7, "the seventh, too")

                dry = await replay(store, "counting", correlation_id="c1", dry_run=True)
                assert (dry.count, dry.read) == (3, 7)
                done = await replay(store, "counting", correlation_id="c1", until=middle)
                assert done.count == 3
                await until(lambda: len(ran) == 10, "those of a correlation")
                assert sorted(ran[7:]) == [1, 3, 5]
                assert (await replay(store, "counting", since=middle, types={"Order"})).count == 1
                await until(lambda: len(ran) == 11, "those since then")
                assert ran[10] == 6
                assert team.stats.total("other").handled == 7

    run(work())


def test_publishers_wait_while_a_group_is_too_far_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forebay.blackboard.lag.CALM_S", 0.0)  # publishers look before each artifact

    async def work() -> None:
        group, prefix = unique("agents"), unique("board") + "."
        async with board(cluster, prefix, partitions=1, lag_group=group, lag_high=10, lag_low=2) as store:
            for n in range(10):
                await store.publish(artifact(n))
            monitor = LagMonitor(store.options, store.topics.artifacts, group)
            assert monitor.lag() == {0: 10}
            held = asyncio.ensure_future(store.publish(artifact(10)))
            await until(lambda: "event=publishers_wait" in caplog.text, "publishers are held")
            assert not held.done()
            team = agents(store, group)
            team.subscribe("slow", "*", lambda given: None)
            async with team:
                await asyncio.wait_for(held, 30)
                await until(
                    lambda: asyncio.to_thread(lambda: monitor.lag() == {0: 0}), "the group has caught up"
                )
            monitor.close()

    run(work())


@MODES
def test_neither_records_that_are_no_artifacts_nor_agents_that_make_too_much_hold_anybody_up(
    cluster: Cluster, transactions: bool
) -> None:
    def answer(given: Artifact) -> Artifact:
        if given.payload["n"] == 2:
            return Artifact("Reply", {"text": "x" * 2_000_000}, "answering")
        if given.payload["n"] == 3:
            raise ValueError("x" * 2_000_000)
        return reply(given)

    def picky(given: Artifact) -> bool:
        return bool(given.payload["missing"])

    async def work() -> None:
        async with board(cluster, partitions=1, transactions=transactions) as store:
            good = b'{"id": "no uuid", "type": "Order", "payload": {}, "produced_by": "p", "created_at": "today"}'
            cluster.produce(store.topics.artifacts, [b"{", b"", b"[1]", good])
            for n in range(4):
                text = "x" * 990_000 if n == 3 else ""
                await store.publish(artifact(n, payload={"n": n, "text": text}, correlation_id="c"))
            team = agents(store, retry=RetryPolicy(attempts=2, backoff_ms=50))
            team.subscribe("answering", "Order", answer)
            team.subscribe("picky", "Order", print, where=picky)
            with pytest.raises(BlackboardError, match="subscribed already"):
                team.subscribe("answering", "*", reply)
            async with team:
                await until(
                    lambda: team.stats.total("answering").dead == 3, "two are given up, and one is refused"
                )
                await until(
                    lambda: team.stats.total("picky").dead == 5, "a condition that fails is a failure"
                )
                await until(lambda: _all(replies(store), 2), "the others are answered")
            assert team.stats.refused == 4
            found = cluster.letters(store.topics.dlq("answering"))
            assert {letter.kind for letter in found} == {"ArtifactError", "ValueError"}
            assert all(letter.whole for letter in found)

    run(work())


@MODES
def test_an_agent_whose_output_a_topic_does_not_take_has_failed_and_holds_up_nobody(
    cluster: Cluster, transactions: bool
) -> None:
    prefix, ran = unique("board") + ".", Counter[tuple[str, int]]()
    cluster.make_topic(1, name=prefix + "by_id", cleanup_policy="compact", max_message_bytes="20000")

    def answer(given: Artifact) -> Artifact:
        ran["answering", given.payload["n"]] += 1
        size = 50_000 if given.payload["n"] == 2 else 10
        return Artifact("Reply", {"to": given.payload["n"], "text": "x" * size}, "answering")

    async def work() -> None:
        async with board(cluster, prefix, partitions=1, transactions=transactions) as store:
            for n in range(5):
                await store.publish(artifact(n, correlation_id="c"))
            team = agents(store, retry=RetryPolicy(attempts=2, backoff_ms=50))
            team.subscribe("answering", "Order", answer)
            team.subscribe("fine", "Order", lambda given: ran.update([("fine", given.payload["n"])]))
            async with team:
                await until(lambda: _all(replies(store), 4), "the others are answered")
                await until(lambda: team.stats.total("answering").dead == 1, "one is given up")
                await until(lambda: _all_done(team), "all is committed")
            assert sorted(await replies(store)) == [0, 1, 3, 4]
            [letter] = cluster.letters(store.topics.dlq("answering"))
            assert (letter.kind, letter.whole) == ("OutputError" if transactions else "ArtifactError", True)
            assert cluster.letters(store.topics.dlq("fine")) == []
            assert all(ran["fine", n] >= 1 for n in range(5))
            assert ran["answering", 2] == 2
            history = await store.agent_history_summary("fine", consistency="latest")
            assert history["consumed"]["total"] == 5

    run(work(), 90)


def _all_done(team: Orchestrator) -> bool:
    return all(
        partition.lag == 0 and partition.committed == partition.frontier
        for pool in team.pools
        for partition in pool.stats().partitions
    )


def call_for_table(cluster: Cluster, prefix: str) -> str:
    where = ["--brokers", cluster.bootstrap_servers, "--prefix", prefix]
    return CliRunner().invoke(board_app, ["ls", *where]).stdout


def test_the_command_shows_artifacts_and_replays_them(cluster: Cluster) -> None:
    prefix, sent = unique("board") + ".", artifact(5, correlation_id="c")

    async def fill() -> None:
        async with board(cluster, prefix) as store:
            await store.publish(sent)
            await store.publish(artifact(6))

    def call(*words: str, code: int = 0) -> list[dict[str, Any]]:
        where = ["--brokers", cluster.bootstrap_servers, "--prefix", prefix]
        done = CliRunner().invoke(board_app, [*words, *where])
        assert done.exit_code == code, done.output
        return (
            [json.loads(line) for line in done.stdout.splitlines()]
            if not code
            else [{"error": done.exception}]
        )

    run(fill())
    assert [each["payload"] for each in call("ls", "-o", "jsonl")] == [{"n": 5}, {"n": 6}]
    assert [each["id"] for each in call("ls", "--correlation-id", "c", "-o", "jsonl")] == [str(sent.id)]
    assert str(sent.id)[:8] in call_for_table(cluster, prefix)
    assert call("show", str(sent.id))[0]["payload"] == {"n": 5}
    assert isinstance(call("show", str(UUID(int=1)), code=1)[0]["error"], UnknownObjectError)
    assert call("replay", "someone", "--dry-run", "-o", "jsonl")[0]["count"] == 2
    lag = call("lag", unique("nobody"), "-o", "jsonl")
    assert sum(each["lag"] for each in lag) == 2
    # The group that is meant without a name is the one of agents on these topics.
    consumer = cluster.consumer(f"{prefix}orchestrator")
    ends = [
        TopicPartition(f"{prefix}artifacts", number, end)
        for number, (_, end) in cluster.watermarks(f"{prefix}artifacts").items()
    ]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()
    assert sum(each["lag"] for each in call("lag", "-o", "jsonl")) == 0
    where = ["--brokers", cluster.bootstrap_servers, "--prefix", prefix]
    head, *_ = CliRunner().invoke(board_app, ["lag", *where]).stdout.splitlines()
    assert head.split() == ["partition", "┃", "lag"]
