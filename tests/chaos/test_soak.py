"""Nothing only grows: the short form of `make soak`."""

from __future__ import annotations

import statistics

import pytest
from benchmarks.soak import POISON_EVERY, Soaked, soak
from rich.console import Console

SECONDS, RATE = 24.0, 2_000


@pytest.fixture(scope="module")
def soaked() -> Soaked:
    return soak(Console(quiet=True), SECONDS, RATE, kill_every_s=8.0, look_every_s=1.0)


@pytest.mark.timeout(400)
def test_ten_views_have_every_record_once_though_workers_are_killed(soaked: Soaked) -> None:
    assert soaked.killed >= 2
    assert soaked.made > SECONDS * RATE / 4 > POISON_EVERY
    assert not soaked.wrong


def test_descriptors_do_not_grow_once_the_pipeline_is_warm(soaked: Soaked) -> None:
    """Threads are for the long form: Spark's pools have 100 each before they grow no more."""
    warm = [look.descriptors for look in soaked.looks[len(soaked.looks) // 3 :]]
    quarter = len(warm) // 4
    before, after = statistics.median(warm[:quarter]), statistics.median(warm[-quarter:])
    assert after <= before * 1.15, f"from {before} to {after}: {warm}"


def test_files_of_checkpoints_and_logs_are_bounded(soaked: Soaked) -> None:
    last = soaked.looks[-1].files
    assert last["data files"] < 1_000
    assert last["Delta logs"] < 1_500
    assert last["checkpoints"] < 3_000
