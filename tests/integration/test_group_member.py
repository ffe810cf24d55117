"""The member of a shared group on the real broker, without Spark: planning, confirming and committing as a session does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable
from support import NUMBERS, Cluster, kafka_source, numbers
from waiting import eventually

from forebay.connectors.contract import Offsets, SourceCheckpoint
from forebay.devstack import DevStack
from forebay.errors import CommitError, PartitionsLostError
from forebay.kafka.offsets import KafkaPosition, lost_between
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.share import ShareFolder
from forebay.source import datasource
from forebay.source.spark_types import to_spark

COUNT = 40


class Process:
    """Plans, reads and commits batches in a thread, until it is ended. `hold` stops it in the middle of a batch."""

    def __init__(
        self, options: dict[str, str], folder: Path, *, after: Process | None = None, held: bool = False
    ) -> None:
        self.driver, self.planner = kafka_source(options), kafka_source(options)
        self.position: Offsets = self.driver.initial_offsets() if after is None else after.position
        self.read: list[tuple[TopicPartition, int]] = []
        self.in_flight: list[tuple[TopicPartition, int]] = []  # when it was held
        self.hold, self.held = threading.Event(), threading.Event()
        if not held:
            self.hold.set()
        self.lost: list[PartitionsLostError] = []
        assert self.driver.share is not None
        assert self.planner.share is not None
        self.share = self.driver.share
        self.planner.share.follow(folder)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.share.join(folder, lambda: self.position, self._thread.is_alive)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.is_set():
            end = self.planner.latest_offsets(self.position, 7)
            if end == self.position:
                continue
            if not self.hold.is_set() and (records := self._records(end)):
                self.in_flight = records
                self.held.set()
                self.hold.wait(60)
            try:
                self.share.confirm(self.position, end)
            except PartitionsLostError as error:
                self.lost.append(error)
                continue
            here, there = KafkaPosition.from_json(self.position), KafkaPosition.from_json(end)
            assert not lost_between(here, there), "what others have read is no loss"
            self.read += self._records(end)
            self.position = end
            with suppress(CommitError, PartitionsLostError):
                self.driver.commit_offsets(SourceCheckpoint(end, 0))

    def _records(self, end: Offsets) -> list[tuple[TopicPartition, int]]:
        spans = [span for split in self.planner.splits(self.position, end, 1) for span in split.spans()]
        return [((topic, number), at) for topic, number, first, after in spans for at in range(first, after)]

    def assigned(self) -> int:
        return int(self.driver.metrics().custom["assigned_partitions"])

    def end(self) -> None:
        self.hold.set()
        self._ended.set()
        self._thread.join()
        self.driver.close()
        self.planner.close()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.end()


def options_of(cluster: Cluster, topic: str, **more: str) -> dict[str, str]:
    given = {"group.mode": "shared", "session.timeout.ms": "6000", "poll.timeout.ms": "50"}
    return cluster.kafka_options(topic) | given | {key.replace("_", "."): text for key, text in more.items()}


def all_once(processes: list[Process], topic: str, each: int) -> None:
    expected = [((topic, number), at) for number in range(4) for at in range(each)]
    eventually(lambda: sum(len(process.read) for process in processes) >= len(expected), "all is read")
    assert sorted(record for process in processes for record in process.read) == expected


def test_a_process_joins_its_group_when_its_first_batch_is_done_which_reads_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.make_topic(4)
    options = options_of(cluster, topic)
    cluster.produce(topic, numbers(4 * COUNT))
    own = {datasource.SHARE: str(tmp_path / "share"), datasource.SHARED: str(tmp_path / "views.json")}
    driver = kafka_source(options)
    planner = datasource.ForebaySource({**options, **own}).streamReader(to_spark(NUMBERS))
    ended = (
        threading.Event()
    )  # until then, partitions are not given up before a batch that was planned is done
    try:
        start = planner.initialOffset()
        assert driver.share is not None
        driver.share.join(tmp_path / "share", lambda: None, lambda: not ended.is_set())
        first = planner.latestOffset(start, ReadAllAvailable())
        assert first != start, "Spark makes a batch of it"
        assert driver.count(start, first) == 0
        assert ShareFolder(tmp_path / "share").seen() == 0, "which the member waits for"
        # Spark asks for the next batch when this one is done.
        eventually(
            lambda: driver.count(first, planner.latestOffset(first, ReadAllAvailable())) == 4 * COUNT,
            "it is assigned all partitions",
        )
    finally:
        ended.set()
        planner.stop()
        driver.close()


def test_a_session_that_brokers_refuse_is_said_with_the_setting_that_refuses_it(
    cluster: Cluster, tmp_path: Path, processes: list[Process]
) -> None:
    topic = cluster.make_topic(1)
    processes.append(Process(options_of(cluster, topic, session_timeout_ms="900"), tmp_path / "one"))
    share = processes[0].share

    def trouble() -> str:
        return next((line for line in share.lines() if "trouble: " in line), "")

    eventually(trouble, "the member has said what is wrong")
    assert "refuse session.timeout.ms = 900" in trouble()
    assert "group.min.session.timeout.ms" in trouble()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", "roundrobin"])
def test_partitions_go_and_come_back_and_every_record_is_read_by_one(
    cluster: Cluster, tmp_path: Path, processes: list[Process], strategy: str
) -> None:
    topic = cluster.make_topic(4)
    options = options_of(cluster, topic, partition_assignment_strategy=strategy)
    cluster.produce(topic, numbers(4 * COUNT))
    one = Process(options, tmp_path / "one")
    processes.append(one)
    all_once(processes, topic, COUNT)
    two = Process(options, tmp_path / "two")
    processes.append(two)
    eventually(lambda: one.assigned() == 2 == two.assigned(), "each has two partitions")
    cluster.produce(topic, numbers(4 * COUNT))
    all_once(processes, topic, 2 * COUNT)
    assert len(two.read) == 2 * COUNT
    two.end()
    cluster.produce(topic, numbers(4 * COUNT))
    all_once(processes, topic, 3 * COUNT)  # those of the other are back, further on than this one left them
    assert one.assigned() == 4
    metrics = one.driver.metrics().custom
    assert metrics["rebalances_total"] >= 3
    ends = dict.fromkeys(range(4), 3 * COUNT)
    eventually(lambda: cluster.committed(options["group.id"], topic) == ends, "the group has all of it")


def test_a_partition_goes_when_the_batch_in_flight_is_done_and_committed(
    cluster: Cluster, tmp_path: Path, processes: list[Process]
) -> None:
    topic = cluster.make_topic(4)
    options = options_of(cluster, topic)
    cluster.produce(topic, numbers(4))
    one = Process(options, tmp_path / "one", held=True)
    processes.append(one)
    assert one.held.wait(20)
    assert len(one.in_flight) == 4
    two = Process(options, tmp_path / "two")
    processes.append(two)
    share = one.planner.share
    assert share is not None
    eventually(lambda: len(share.folder.assignment().partitions) == 2, "nothing more is planned of two")  # type: ignore[attr-defined]
    assert two.assigned() == 0
    one.hold.set()
    eventually(lambda: two.assigned() == 2, "they go")
    all_once(processes, topic, 1)
    assert set(one.in_flight) <= set(one.read), "the batch in flight was its own"
    assert not one.lost


def test_a_batch_that_takes_longer_than_the_group_waits_is_given_up_and_read_by_the_next_owner(
    cluster: Cluster, tmp_path: Path, processes: list[Process]
) -> None:
    topic = cluster.make_topic(4)
    options = options_of(cluster, topic, max_poll_interval_ms="6000")
    cluster.produce(topic, numbers(4))
    one = Process(options, tmp_path / "one", held=True)
    processes.append(one)
    assert one.held.wait(20)
    assert len(one.in_flight) == 4
    two = Process(options, tmp_path / "two")
    processes.append(two)
    eventually(lambda: len(two.read) == 2, "the other has its partitions, and reads them")
    one.hold.set()
    all_once(processes, topic, 1)
    assert not set(two.read).isdisjoint(one.in_flight)
    assert [type(error) for error in one.lost] == [PartitionsLostError]


def test_what_was_checkpointed_and_not_committed_is_not_read_again_by_its_own_home(
    cluster: Cluster, tmp_path: Path, processes: list[Process]
) -> None:
    topic = cluster.make_topic(4)
    options = options_of(cluster, topic)
    cluster.produce(topic, numbers(4 * COUNT))
    one = Process(options, tmp_path / "one")
    processes.append(one)
    all_once(processes, topic, COUNT)
    one.end()
    cluster.commit(options["group.id"], topic, dict.fromkeys(range(4), COUNT - 5))
    processes.append(Process(options, tmp_path / "one", after=one))
    cluster.produce(topic, numbers(4))
    all_once(processes, topic, COUNT + 1)


def test_records_flow_again_after_a_broker_restart_and_new_partitions_are_shared(
    mortal_broker: DevStack, tmp_path: Path, processes: list[Process]
) -> None:
    cluster = Cluster(mortal_broker)
    topic = cluster.make_topic(2)
    options = options_of(cluster, topic, startup_mode="latest")
    processes += [Process(options, tmp_path / "one"), Process(options, tmp_path / "two")]
    eventually(lambda: [each.assigned() for each in processes] == [1, 1], "each has one partition")
    cluster.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    cluster.await_leaders(topic, 4)
    cluster.produce(topic, numbers(4 * COUNT))  # a partition that came later has nothing to be left out
    all_once(processes, topic, COUNT)
    mortal_broker.kill_broker()
    mortal_broker.start_broker()
    began = time.monotonic()
    cluster.produce(topic, numbers(4 * COUNT))
    all_once(processes, topic, 2 * COUNT)
    print(f"flowing again {time.monotonic() - began:.1f} s after the broker is back")
    assert [each.assigned() for each in processes] == [2, 2]
