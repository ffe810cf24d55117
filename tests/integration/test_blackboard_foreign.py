"""One foreign record does not stop the blackboard, nor does a log that is not what it was."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from boards import artifact, board, run
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from foreign_records import GOOD, KEYS, KINDS, foreign, good
from prometheus_client import CollectorRegistry, generate_latest
from support import Cluster, unique
from waiting import eventually, until

from forebay.blackboard import Artifact, KafkaBlackboardStore, Orchestrator, RetryPolicy, replay
from forebay.blackboard import index_feed as feed
from forebay.blackboard.index import Index
from forebay.devstack import DevStack
from forebay.errors import IndexBehindError, UnknownTopicError

INDEXED = [kind for kind in KINDS if kind != "artifacts"]
COUNTS = {kind: len(foreign(kind)) for kind in KINDS}


def metrics(store: KafkaBlackboardStore) -> str:
    registry = CollectorRegistry()
    registry.register(store.collector())
    return generate_latest(registry).decode()


def write_foreign(cluster: Cluster, store: KafkaBlackboardStore, kind: str) -> set[int]:
    """Returns their offsets."""
    written = cluster.produce(getattr(store.topics, kind), foreign(kind).values(), key=KEYS[kind])
    return {message.offset() for message in written}


def test_foreign_records_in_every_indexed_topic_are_refused_one_by_one_now_and_after_a_restart(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prefix, kept = unique("board") + ".", str(tmp_path / "board.db")
    first, second = artifact(1), artifact(2)

    async def check(store: KafkaBlackboardStore, expected: list[Artifact]) -> None:
        for consistency in ("own", "latest"):
            assert await store.list(consistency=consistency) == expected
        assert await store.query_artifacts(embed_meta=True) != ([], 0)
        assert await store.load_agent_snapshots() == []
        assert (await store.summarize_artifacts())["total"] == len(expected)
        assert await store.get(UUID(GOOD["by_id"]["id"])) is None
        assert store.stats().trouble is None

    async def work() -> None:
        async with board(cluster, prefix, index_path=kept) as store:
            await store.publish(first)
            for kind in INDEXED:
                await asyncio.to_thread(write_foreign, cluster, store, kind)
            await check(store, [first])
            refused = {getattr(store.topics, kind): COUNTS[kind] for kind in INDEXED}
            assert store.stats().refused == refused
            for topic, count in refused.items():
                assert f'forebay_board_refused_records_total{{topic="{topic}"}} {count}.0' in metrics(store)
                for partition, (_, end) in cluster.watermarks(topic).items():
                    for offset in range(end if topic != store.topics.by_id else 0):
                        assert f"{topic}-{partition} at offset {offset} is nothing" in caplog.text
        async with board(cluster, prefix, index_path=kept) as again:  # goes on after them
            await again.publish(second)
            await check(again, [first, second])
            assert again.stats().refused == {}
        async with board(cluster, prefix) as anew:  # reads all of them
            await check(anew, [first, second])
            assert anew.stats().refused == refused

    with caplog.at_level(logging.WARNING, "forebay.blackboard"):
        run(work())


@pytest.mark.parametrize("transactions", [False, True], ids=["at-least-once", "exactly-once"])
def test_foreign_records_in_the_log_are_dead_letters_of_the_agents_that_they_were_for_and_hold_up_nobody(
    cluster: Cluster, transactions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    junk = list(foreign("artifacts").values())

    async def work() -> None:
        async with board(cluster, partitions=1, transactions=transactions) as store:
            await store.publish(artifact(1, partition_key="p"))
            refused = await asyncio.to_thread(write_foreign, cluster, store, "artifacts")
            far = [("forebay.retry.due.ms", b"%d" % 2**61)]  # a valid artifact, put off for ever by somebody
            cluster.produce(store.topics.artifacts, [good("artifacts")], key=b"p", headers=far)
            bad = [("forebay.agent", b"every"), ("forebay.retry.attempt", b"-7")]
            written = cluster.produce(store.topics.artifacts, [good("artifacts")], key=b"p", headers=bad)
            refused.add(written[0].offset())
            await store.publish(artifact(2, partition_key="p"))
            team = Orchestrator(
                store, unique("agents"), retry=RetryPolicy(backoff_max_ms=200), commit_interval_ms=100
            )
            team.subscribe("orders", "Order", lambda given: seen.append(given.payload["n"]))
            team.subscribe("every", "*", lambda given: None)
            async with team:
                await until(lambda: team.stats.total("every").handled == 3, "all three are handled")
                end = cluster.watermarks(store.topics.artifacts)[0][1]
                await until(lambda: team.pools[0].stats().partitions[0].committed == end, "all are committed")
            assert seen == [1, 1, 2]
            assert team.stats.refused == store.stats().refused[store.topics.artifacts] == len(junk) + 1
            found = cluster.letters(store.topics.dlq("every"))
            assert {letter.offset for letter in found} == refused
            assert {letter.value for letter in found} == {*junk, good("artifacts")}
            assert {letter.kind for letter in found} == {"ArtifactError"}
            orders = cluster.letters(store.topics.dlq("orders"))
            typed = [value for value in junk if b'"type": "Order"' in value]
            assert 20 < len(orders) <= len(typed)  # of those, some have a type that cannot be read
            assert {letter.value for letter in orders} <= set(typed)
            for offset in refused:
                assert f"{store.topics.artifacts}-0 at offset {offset} is nothing" in caplog.text
            done = await replay(store, "orders", dry_run=True)
            assert (done.read, done.count) == (len(junk) + 4, 4)

    with caplog.at_level(logging.WARNING, "forebay.blackboard"):
        run(work())


class Strict:
    """A program's class that does not take every payload."""

    def __init__(self, n: int) -> None:
        self.n = int(n)


def test_what_the_programs_own_classes_refuse_is_left_out_of_answers_and_named_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with board(cluster) as store:
            await store.publish(artifact(1, type="Strict"))
            await store.publish(artifact(0, type="Strict", payload={"n": "many"}))
            for _ in range(3):
                assert [each.n for each in await store.get_by_type(Strict)] == [1]
            assert store.stats().refused == {store.topics.by_id: 1}
            assert caplog.text.count("is nothing that a blackboard holds") == 1

    with caplog.at_level(logging.WARNING, "forebay.blackboard"):
        run(work())


def test_a_topic_that_is_made_anew_while_a_store_runs_is_read_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "TOPICS_AGE_S", 0.2)

    async def work() -> None:
        async with board(cluster, partitions=1) as store:
            for n in range(5):
                await store.publish(artifact(n))
            assert len(await store.list()) == 5
            await asyncio.to_thread(cluster.delete_topic, store.topics.by_id)
            config = {"cleanup.policy": "compact"}
            made = cluster.admin.create_topics([NewTopic(store.topics.by_id, 1, 1, config=config)])
            await asyncio.to_thread(made[store.topics.by_id].result, 30)
            await asyncio.to_thread(cluster.await_leaders, store.topics.by_id, 1)
            await until(lambda: store.stats().replaced == 1, "the store notices")
            new = artifact(7)
            await store.publish(new)

            async def sees_it() -> bool:
                try:
                    return await store.list(consistency="latest") == [new]
                except (IndexBehindError, UnknownTopicError):  # it may have looked when there was none
                    return False

            await until(sees_it, "only what is in the new topic is there")
            assert await store.list() == [new]
            assert store.stats().trouble is None

    run(work())


def set_policy(cluster: Cluster, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result(30)


def test_a_kept_index_of_a_log_whose_records_were_deleted_is_made_anew(
    cluster: Cluster, tmp_path: Path
) -> None:
    prefix, kept = unique("board") + ".", str(tmp_path / "board.db")

    async def work() -> None:
        async with board(cluster, prefix, index_path=kept, partitions=1) as store:
            for n in range(4):
                await store.publish(artifact(n))
        async with board(cluster, prefix, partitions=1) as other:
            await other.publish(artifact(4))
            await other.publish(artifact(5))
        set_policy(
            cluster, store.topics.by_id, "compact,delete"
        )  # only then the broker lets records be deleted
        deleted = cluster.admin.delete_records([TopicPartition(store.topics.by_id, 0, 5)])
        await asyncio.to_thread(next(iter(deleted.values())).result, 30)
        set_policy(cluster, store.topics.by_id, "compact")
        async with board(cluster, prefix, index_path=kept, partitions=1) as again:
            assert [each.payload["n"] for each in await again.list()] == [5]
            assert again.stats().fed == 1

    run(work())


def truncate(stack: DevStack, topic: str) -> None:
    """As if its records had never been: a disk that was restored from an earlier copy."""
    stack.broker.kill()
    for folder in (stack.broker.directory / "data").glob(f"{topic}-*"):
        for file in folder.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        (stack.broker.directory / "data" / name).unlink(missing_ok=True)
    stack.broker.start()


def test_an_index_that_is_ahead_of_a_truncated_log_is_made_anew_by_itself_running_or_kept(
    mortal_broker: DevStack, tmp_path: Path
) -> None:
    cluster = Cluster(mortal_broker)
    prefix, kept = unique("board") + ".", str(tmp_path / "board.db")
    new, newer = artifact(7), artifact(8)

    async def only(store: KafkaBlackboardStore, expected: list[Artifact]) -> bool:
        try:
            return await store.list(consistency="latest") == expected
        except IndexBehindError:
            return False

    async def work() -> None:
        async with board(cluster, prefix, index_path=kept, partitions=1) as store:
            for n in range(5):
                await store.publish(artifact(n))
            assert len(await store.list()) == 5
            await asyncio.to_thread(truncate, mortal_broker, store.topics.by_id)
            await until(lambda: store.stats().replaced == 1, "the running store notices")
            async with board(cluster, prefix, partitions=1) as other:
                await other.publish(new)
            await until(lambda: only(store, [new]), "only what is in the log is there")
        async with board(cluster, prefix, partitions=1) as other:
            for n in range(5):
                await other.publish(artifact(n))
            async with board(cluster, prefix, index_path=kept, partitions=1) as store:
                assert len(await store.list()) == 6
        await asyncio.to_thread(truncate, mortal_broker, prefix + "by_id")
        eventually(lambda: cluster.admin.list_topics(timeout=10).brokers, "the broker is back")
        async with board(cluster, prefix, partitions=1) as other:
            await other.publish(newer)
        async with board(cluster, prefix, index_path=kept, partitions=1) as again:
            assert await again.list() == [newer]

    run(work(), 120)


def test_a_feed_that_fails_says_why_and_goes_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk cannot be had on demand: the index's own verb stands in for it."""

    async def work() -> None:
        async with board(cluster, partitions=1, read_timeout_ms=20_000) as store:
            apply, full = Index.apply, True

            def on_a_full_disk(*given: Any) -> None:
                if full:
                    raise OSError(28, "No space left on device")
                apply(*given)

            monkeypatch.setattr(Index, "apply", on_a_full_disk)
            await store.publish(artifact(1))
            with pytest.raises(IndexBehindError, match="No space left on device"):
                await store.list()
            assert "No space left" in (store.stats().trouble or "")
            assert "forebay_board_index_following 0.0" in metrics(store)
            full = False
            await until(lambda: store.stats().trouble is None, "it goes on by itself")
            assert len(await store.list()) == 1
            assert "forebay_board_index_following 1.0" in metrics(store)

    run(work())
