"""Consumers kept between tasks: reused, closed when idle, never shared with a forked process."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import inside
import pytest
from confluent_kafka import Consumer, TopicPartition
from support import Cluster, kafka_source, numbers
from waiting import eventually

from forebay.kafka.consumers import IDLE_CLOSE_S, ConsumerCache
from forebay.kafka.settings import consumer_settings


@pytest.fixture
def settings(cluster: Cluster) -> dict[str, Any]:
    return consumer_settings(kafka_source(cluster.kafka_options("t")).options)


@pytest.fixture
def cache() -> Iterator[ConsumerCache]:
    cache = ConsumerCache()
    yield cache
    cache.close()


def is_closed(consumer: Consumer) -> bool:
    try:
        consumer.assignment()
    except RuntimeError:
        return True
    return False


def test_a_consumer_is_reused_for_the_same_settings(cache: ConsumerCache, settings: dict[str, Any]) -> None:
    with cache.borrow(settings) as first:
        assert cache.idle() == 0
    assert cache.idle() == 1
    with cache.borrow(dict(reversed(settings.items()))) as second:
        assert second is first
    with cache.borrow(settings | {"group.id": "another"}) as other:
        assert other is not first
    assert cache.idle() == 2


def test_two_readers_at_once_have_a_consumer_each(cache: ConsumerCache, settings: dict[str, Any]) -> None:
    with cache.borrow(settings) as first, cache.borrow(settings) as second:
        assert first is not second
    assert cache.idle() == 2


def test_an_idle_consumer_fetches_nothing(
    cluster: Cluster, cache: ConsumerCache, settings: dict[str, Any]
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(3))
    with cache.borrow(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.consume(1, 10)
    assert consumer.assignment() == []
    with cache.borrow(settings) as consumer:
        assert consumer.consume(10, 0.1) == []


def test_a_consumer_whose_use_failed_is_closed_and_not_kept(
    cache: ConsumerCache, settings: dict[str, Any]
) -> None:
    with pytest.raises(ZeroDivisionError), cache.borrow(settings) as consumer:
        raise ZeroDivisionError
    assert cache.idle() == 0
    assert is_closed(consumer)


def test_an_idle_consumer_is_closed_after_a_while(settings: dict[str, Any]) -> None:
    cache = ConsumerCache(idle_close_s=0.2)
    with cache.borrow(settings) as consumer:
        time.sleep(0.3)  # in use for longer than that: not idle
        assert not is_closed(consumer)
    assert cache.idle() == 1
    eventually(lambda: cache.idle() == 0, "the idle consumer is forgotten", timeout=10)
    eventually(lambda: is_closed(consumer), "the idle consumer is closed", timeout=10)
    with cache.borrow(settings) as another:
        assert another is not consumer
    cache.close()


def test_closing_the_cache_closes_what_is_idle(settings: dict[str, Any]) -> None:
    cache = ConsumerCache()
    with cache.borrow(settings) as consumer:
        pass
    cache.close()
    assert is_closed(consumer)
    assert cache.idle() == 0
    assert IDLE_CLOSE_S < 60  # Spark ends an idle worker after a minute


def in_child(work: Any, timeout: float = 20) -> int:
    """The exit code of a forked process; a hang is -9."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking with threads running is the point here
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    alarm = threading.Timer(timeout, os.kill, (child, signal.SIGKILL))
    alarm.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        alarm.cancel()


def test_after_a_fork_nothing_of_the_parents_is_used_or_closed(
    cluster: Cluster, cache: ConsumerCache, settings: dict[str, Any]
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(2))
    with cache.borrow(settings) as parents:
        pass

    def work() -> int:
        with cache.borrow(settings) as own:
            own.assign([TopicPartition(topic, 0, 0)])
            found = own.consume(2, 15)
        cache.close()
        return 0 if own is not parents and len(found) >= 1 else 7

    assert in_child(work) == 0
    assert cache.idle() == 1
    with cache.borrow(settings) as again:
        assert again is parents
        again.assign([TopicPartition(topic, 0, 0)])
        assert again.consume(1, 10)


def test_a_forked_process_can_close_the_cache_even_when_a_thread_held_its_lock(
    cache: ConsumerCache, settings: dict[str, Any]
) -> None:
    with cache.borrow(settings):
        pass
    with inside.held_lock(cache):
        assert in_child(lambda: cache.close() or cache.idle()) == 0
    assert cache.idle() == 1
