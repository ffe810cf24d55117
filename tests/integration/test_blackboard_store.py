"""The blackboard's store on a real broker: what is published is found, here and elsewhere, now and later."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from boards import artifact, board, run
from confluent_kafka.admin import NewPartitions
from support import Cluster, unique
from waiting import until

from forebay.blackboard import (
    AgentSnapshotRecord,
    ArtifactEnvelope,
    ConsumptionRecord,
    FilterConfig,
    KafkaBlackboardStore,
)
from forebay.blackboard import (
    index_feed as feed,
)
from forebay.blackboard.artifact import PlainCodec
from forebay.errors import (
    AlreadyRunningError,
    ArtifactError,
    BlackboardTopicError,
    FencedError,
    IndexBehindError,
    StoreClosedError,
    UnknownTopicError,
)

BASE = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Order:
    n: int


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactional"])
def test_what_is_published_is_read_back_at_once_by_whoever_published_it(
    cluster: Cluster, transactions: bool
) -> None:
    async def work() -> None:
        async with board(cluster, transactions=transactions) as store:
            sent = artifact(
                7,
                correlation_id="c-1",
                tags=frozenset({"new"}),
                visibility={"kind": "Tenant", "tenant_id": "t"},
            )
            await store.publish(sent)
            assert await store.get(sent.id) == sent
            assert await store.get(uuid4()) is None
            assert await store.list() == await store.list_by_type("Order") == [sent]
            assert await store.list_by_type("Other") == []
            assert await store.get_by_type(Order) == [Order(7)]
            assert await store.get_by_type(Order, correlation_id="c-2") == []

            newer = replace(sent, payload={"n": 8}, version=2)
            await store.publish(newer)
            assert await store.get(sent.id) == newer
            assert await store.list() == [newer]

    run(work())


def test_another_process_sees_it_and_an_index_that_was_kept_goes_on_where_it_stopped(
    cluster: Cluster, tmp_path: Path
) -> None:
    prefix, kept = unique("board") + ".", str(tmp_path / "board.db")
    first, second, third = artifact(1), artifact(2), artifact(3)

    async def work() -> None:
        async with board(cluster, prefix) as writer:
            await writer.publish(first)
            async with board(cluster, prefix, index_path=kept) as other:
                assert await other.list() == [first]  # read from the compacted topic at its start
                await writer.publish(second)
                assert await other.get(second.id, consistency="latest") == second
                with pytest.raises(AlreadyRunningError, match="in use"):
                    await board(cluster, prefix, index_path=kept).start()
            await writer.publish(replace(first, version=2))
            await writer.publish(third)
            async with board(cluster, prefix, index_path=kept) as again:
                assert await again.list() == [replace(first, version=2), second, third]
                assert again.stats().fed == 2  # what is new, and not all again

    run(work())


def test_an_index_of_topics_that_were_made_anew_is_made_anew(cluster: Cluster, tmp_path: Path) -> None:
    prefix, kept = unique("board") + ".", str(tmp_path / "board.db")
    old, new = artifact(1), artifact(2)

    async def work() -> None:
        async with board(cluster, prefix, index_path=kept) as store:
            await store.publish(old)
            await store.publish(artifact(3))
        cluster.delete_topic(prefix + "by_id")
        async with board(cluster, prefix, index_path=kept) as store:
            await store.publish(new)
            assert await store.list() == [new]

    run(work())


def test_artifacts_in_partitions_that_were_added_are_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "TOPICS_AGE_S", 0.2)
    prefix = unique("board") + "."

    async def work() -> None:
        async with board(cluster, prefix, partitions=1) as store:
            await store.publish(artifact(0))
            for topic in (store.topics.by_id, store.topics.artifacts):
                cluster.admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
                cluster.await_leaders(topic, 6)
            async with board(cluster, prefix) as later:
                for n in range(1, 20):
                    await later.publish(artifact(n))
                assert len(await later.list()) == 20
            assert len(cluster.watermarks(store.topics.by_id)) == 6
            await until(lambda: _count(store, 20), "all partitions are read")

    run(work())


async def _count(store: KafkaBlackboardStore, count: int) -> bool:
    return len(await store.list(consistency="latest")) == count


def test_lists_are_windows_of_the_newest_and_queries_are_not(cluster: Cluster) -> None:
    sent = [artifact(n, created_at=BASE + timedelta(seconds=n)) for n in range(25)]

    async def work() -> None:
        async with board(cluster, index_window=10) as store:
            await asyncio.gather(*(store.publish(each) for each in reversed(sent)))
            assert await store.list() == sent[15:]
            assert await store.list_by_type("Order") == sent[15:]
            page, total = await store.query_artifacts(limit=5, offset=2)
            assert (page, total) == (sent[2:7], 25)
            everything, total = await store.query_artifacts(limit=0)
            assert (everything, total) == (sent, 25)
            assert await store.get(sent[0].id) == sent[0]

    run(work())


def test_the_whole_interface_of_a_store_is_answered_from_the_log(cluster: Cluster) -> None:
    prefix = unique("board") + "."
    one = artifact(1, tags=frozenset({"a", "b"}), created_at=BASE, correlation_id="c")
    two = artifact(
        2, produced_by="web", type="Reply", tags=frozenset({"a"}), created_at=BASE + timedelta(hours=2)
    )
    snapshot = AgentSnapshotRecord("web", "answers", ["Order"], ["Reply"], ["l"], BASE, BASE, "s1")

    async def work() -> None:
        async with board(cluster, prefix) as writer:
            for each in (one, two):
                await writer.publish(each)
            consumed = ConsumptionRecord(one.id, "web", "run-1", "c", BASE)
            await writer.record_consumptions([consumed])
            await writer.record_consumptions([consumed])  # told twice, consumed once
            await writer.upsert_agent_snapshot(snapshot)
            async with board(cluster, prefix) as reader:
                found, total = await reader.query_artifacts(FilterConfig(tags={"a", "b"}), embed_meta=True)
                assert (found, total) == ([ArtifactEnvelope(one, [consumed])], 1)
                for filters in (
                    FilterConfig(type_names={"Reply"}),
                    FilterConfig(produced_by={"web"}),
                    FilterConfig(start=BASE + timedelta(seconds=1)),
                    FilterConfig(
                        visibility={"Public"}, end=BASE + timedelta(days=1), tags={"a"}, type_names={"Reply"}
                    ),
                ):
                    assert await reader.query_artifacts(filters) == ([two], 1)
                assert await reader.query_artifacts(FilterConfig(correlation_id="c", end=BASE)) == ([one], 1)
                graph, _ = await reader.fetch_graph_artifacts(limit=1, offset=1)
                assert graph == [ArtifactEnvelope(two, [])]
                assert await reader.summarize_artifacts() == {
                    "total": 2,
                    "by_type": {"Order": 1, "Reply": 1},
                    "by_producer": {"shop": 1, "web": 1},
                    "by_visibility": {"Public": 2},
                    "tag_counts": {"a": 2, "b": 1},
                    "earliest_created_at": BASE.isoformat(),
                    "latest_created_at": (BASE + timedelta(hours=2)).isoformat(),
                    "is_full_window": True,
                    "window_span_label": "2.0 hours",
                }
                history = await reader.agent_history_summary("web")
                assert history["produced"] == {"total": 1, "by_type": {"Reply": 1}}
                assert history["consumed"] == {"total": 1, "by_type": {"Order": 1}}
                assert await reader.load_agent_snapshots() == [snapshot]
                await reader.clear_agent_snapshots()
                assert await reader.load_agent_snapshots() == []
                assert await writer.load_agent_snapshots(consistency="latest") == []

    run(work())


def test_a_record_is_keyed_by_what_belongs_together_and_is_a_cloud_event(cluster: Cluster) -> None:
    async def work() -> None:
        async with board(cluster, partitions=8) as store:
            await store.publish(artifact(1, partition_key="p", correlation_id="c"))
            await asyncio.gather(*(store.publish(artifact(n, correlation_id="c")) for n in range(20)))
            for n in range(20):
                await store.publish(artifact(n))
            found = cluster.records(store.topics.artifacts)
            keys = [message.key() for message in found]
            assert keys.count(b"p") == 1
            assert len({message.partition() for message in found if message.key() == b"c"}) == 1
            assert len({message.partition() for message in found if message.key() not in (b"c", b"p")}) > 3
            headers = dict(next(message for message in found if message.key() == b"p").headers())
            assert headers["ce_specversion"] == b"1.0"
            assert headers["ce_type"] == b"Order"
            assert headers["ce_source"] == b"/agents/shop"
            assert headers["ce_correlationid"] == b"c"
            assert headers["ce_partitionkey"] == b"p"
            assert headers["content-type"] == b"application/json"
            assert {message.key() for message in cluster.records(store.topics.by_id)} == {
                dict(message.headers())["ce_id"] for message in found
            }

    run(work())


def test_topics_are_kept_as_a_blackboard_needs_them_or_it_says_which_is_not(cluster: Cluster) -> None:
    prefix = unique("board") + "."
    cluster.make_topic(1, name=prefix + "artifacts", cleanup_policy="compact")
    with pytest.raises(BlackboardTopicError, match=r"artifacts' on .* has cleanup.policy = compact"):
        run(board(cluster, prefix).start())
    with pytest.raises(UnknownTopicError, match="there is no topic"):
        run(board(cluster, create_topics=False).start())


def test_marks_are_kept_for_a_while_and_artifacts_for_ever_and_older_topics_of_marks_are_taken_as_they_are(
    cluster: Cluster,
) -> None:
    prefix = unique("board") + "."
    cluster.make_topic(1, name=prefix + "processed", cleanup_policy="compact")  # as they were made once

    async def work() -> None:
        async with board(cluster, prefix, marks_retention_ms=86_400_000) as store:
            topics = store.topics
            assert cluster.config(topics.consumptions, "cleanup.policy") == "compact,delete"
            assert cluster.config(topics.consumptions, "retention.ms") == "86400000"
            assert cluster.config(topics.processed, "cleanup.policy") == "compact"
            assert cluster.config(topics.by_id, "cleanup.policy") == "compact"
        with pytest.raises(BlackboardTopicError, match="consumptions"):
            await board(cluster, prefix, marks_retention_ms=-1).start()

    run(work())


def test_what_cannot_be_kept_is_refused_and_nothing_of_it_is_written(cluster: Cluster) -> None:
    async def work() -> None:
        async with board(cluster) as store:
            for payload in ({"n": float("nan")}, {"n": object()}):
                with pytest.raises(ArtifactError, match="cannot be written as JSON"):
                    await store.publish(artifact(payload=payload))
            with pytest.raises(ArtifactError, match=r"has 2,000,\d+ bytes, and the most is 1,000,000"):
                await store.publish(artifact(payload={"text": "x" * 2_000_000}))
            big = artifact(payload={"n": 2**80, "when": BASE, "set": {2, 1}})
            await store.publish(big)
            found = await store.get(big.id)
            assert found.payload == {"n": 2**80, "when": BASE.isoformat(), "set": [1, 2]}
            assert await store.list() == [found]
        with pytest.raises(StoreClosedError):
            await store.publish(artifact())

    run(work())


def test_a_record_that_is_no_artifact_is_left_out_and_counted(cluster: Cluster) -> None:
    async def work() -> None:
        async with board(cluster) as store:
            cluster.produce(store.topics.by_id, [b"{", b"[]", b'{"id": "x"}'], key=b"junk")
            good = artifact()
            await store.publish(good)
            assert await store.list(consistency="latest") == [good]
            assert store.stats().refused == {store.topics.by_id: 3}

    run(work())


def test_an_open_transaction_hides_its_artifacts_and_a_read_says_what_it_waits_for(cluster: Cluster) -> None:
    async def work() -> None:
        prefix = unique("board") + "."
        async with board(cluster, prefix, partitions=1, read_timeout_ms=2000) as store:
            hidden = artifact(1)
            producer = cluster.transactional_producer()
            producer.begin_transaction()
            for record in store.records_of(PlainCodec().document(hidden)):
                producer.produce(record.topic, record.value, record.key)
            producer.flush(30)
            assert await store.get(hidden.id, consistency="latest") is None
            await store.publish(artifact(2))
            with pytest.raises(IndexBehindError, match="by_id-0 up to offset 0"):
                await store.list()
            assert await store.list(consistency="local") == []
            producer.abort_transaction(30)
            assert [each.payload["n"] for each in await store.list(consistency="latest")] == [2]

    run(work())


def test_a_second_program_of_the_same_transactional_id_ends_the_first(cluster: Cluster) -> None:
    prefix, node = unique("board") + ".", {"transactions": True, "transactional_id": unique("node")}

    async def work() -> None:
        async with board(cluster, prefix, **node) as old:
            await old.publish(artifact(1))
            async with board(cluster, prefix, **node) as new:
                await new.publish(artifact(2))
                with pytest.raises(FencedError, match="another program"):
                    await old.publish(artifact(3))
                assert [each.payload["n"] for each in await new.list(consistency="latest")] == [1, 2]

    run(work())


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactional"])
def test_an_artifact_that_a_topic_does_not_take_fails_alone(cluster: Cluster, transactions: bool) -> None:
    """Also where those that are published beside it would together be more than the topic takes at a time."""
    prefix = unique("board") + "."
    cluster.make_topic(1, name=prefix + "artifacts", cleanup_policy="delete", max_message_bytes="5000")

    async def work() -> None:
        async with board(cluster, prefix, transactions=transactions) as store:
            sent = [
                artifact(n, payload={"n": n, "text": "x" * (20_000 if n == 3 else 999)}) for n in range(8)
            ]
            results = await asyncio.gather(*(store.publish(each) for each in sent), return_exceptions=True)
            assert [type(each) for each in results] == [
                ArtifactError if n == 3 else type(None) for n in range(8)
            ]
            found = {each.payload["n"] for each in await store.list()}
            assert found - {3} == {0, 1, 2, 4, 5, 6, 7}
            assert (
                3 not in found or not transactions
            )  # without them, the topic of ids may have what the log refused

    run(work(), 90)
