"""The memory of Python workers does not grow with the records they read: the short form of `make bench`'s run."""

from __future__ import annotations

import os
import statistics

import pytest
from benchmarks.peers import forebay_peer
from benchmarks.peers.contract import Outcome, Task
from benchmarks.runner import prepare, run
from benchmarks.topics import produce
from support import Cluster, unique

RECORDS, BATCH = 300_000, 15_000
WARMUP_BATCHES = 6
# MiB. Some 165,000 records lie between the two medians compared; kept as bytes alone they would be 24.
MAY_GROW = 20


@pytest.fixture(scope="module")
def outcome(cluster: Cluster) -> Outcome:
    servers, warmup, trades = cluster.bootstrap_servers, unique("warmup"), unique("trades")
    produce(servers, warmup, BATCH, 4)
    produce(servers, trades, RECORDS, 4)
    ready = prepare(forebay_peer.PEER)
    assert not isinstance(ready, str), ready
    task = Task(servers, trades, warmup, BATCH, work="", sample_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        # A peer keeps nothing of our settings for Spark; how quick its JVM is in the end is not the question here.
        patch.setenv("JDK_JAVA_OPTIONS", os.environ["SPARK_SUBMIT_OPTS"])
        return run(forebay_peer.PEER, ready, task, timeout_s=240)


def test_every_record_comes_through_in_small_batches(outcome: Outcome) -> None:
    assert outcome.records == RECORDS
    assert outcome.batches >= 20


def test_workers_do_not_grow_once_they_are_warm(outcome: Outcome) -> None:
    warm = [s for s in outcome.samples if s.records >= WARMUP_BATCHES * BATCH and s.workers]
    assert len(warm) >= 8, "too few samples to say anything"
    largest = [max(sample.workers.values()) / 2**20 for sample in warm]
    quarter = len(largest) // 4
    before, after = statistics.median(largest[:quarter]), statistics.median(largest[-quarter:])
    assert after - before <= MAY_GROW, f"workers grew from {before:.0f} to {after:.0f} MiB"


def test_the_planner_does_not_grow_either(outcome: Outcome) -> None:
    warm = [s.planner / 2**20 for s in outcome.samples if s.records >= WARMUP_BATCHES * BATCH and s.planner]
    assert max(warm) - warm[0] <= MAY_GROW
