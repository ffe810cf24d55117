"""Checkpoints on a full disk, damaged ones, offsets that the brokers have forgotten, and clocks that are set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from disks import fill, small_disk
from sessions import catalog_of, caught_up, checkpoint_of, connect, create_source, events, name, rows
from support import Cluster
from waiting import eventually

from forebay.errors import CheckpointError
from forebay.runtime.session import Session


def ids(db: Session) -> list[int]:
    return sorted(row[0] for row in rows(db, "SELECT id FROM v"))


@pytest.fixture
def begun(tmp_path: Path, cluster: Cluster) -> tuple[Path, str, str]:
    """A home with a view `v` that has ten records, its source and its topic; nobody runs it."""
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(home) as db:
        db.execute(create_source(cluster, source, topic))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
    return home, source, topic


# -- damaged ----------------------------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def test_a_damaged_checkpoint_is_refused_with_the_file_and_what_to_do_and_nothing_is_lost(
    begun: tuple[Path, str, str], cluster: Cluster
) -> None:
    home, _, topic = begun
    checkpoint = checkpoint_of(home, "v")
    commit = newest(checkpoint / "commits")
    unique = [newest(checkpoint / "offsets"), checkpoint / "metadata", checkpoint.parent / "views.json"]
    cluster.produce(topic, events(range(10, 15)))
    with connect(home) as db:
        for file, damage in zip([commit, *unique], [b"v1\n", b"", b'{"id', b"\xff\xfe\x00"], strict=True):
            whole = file.read_bytes()
            file.write_bytes(damage)
            with pytest.raises(CheckpointError) as caught:
                db.start_all()
            assert str(file) in caught.value.message
            assert caught.value.remedy.startswith(
                "remove this file" if file == commit else "restore this file from a backup"
            )
            assert ids(db) == list(range(10))  # what is in the view can be read all the same
            if file == commit:
                file.unlink()
            else:
                file.write_bytes(whole)
        db.start_all()
        caught_up(db)
        assert ids(db) == list(range(15))


# -- full -------------------------------------------------------------------------------------------------


def test_a_full_checkpoint_disk_stops_no_view_for_good_and_loses_and_repeats_nothing(
    begun: tuple[Path, str, str], cluster: Cluster
) -> None:
    home, source, topic = begun
    folder = home / "sources" / source
    with small_disk(folder):
        with connect(home) as db:
            db.start_all()
            filler = fill(folder)
            cluster.produce(topic, events(range(10, 20)))
            eventually(lambda: db.queries()[0].state == "retrying", "the full disk is noticed", 60)
            assert "FB4018" in db.queries()[0].message
            assert "make room" in db.queries()[0].message
            assert db.health()[source].healthy is False
            cluster.produce(topic, events(range(20, 30)))
            filler.unlink()
            eventually(lambda: db.queries()[0].state == "running", "it goes on by itself", 60)
            caught_up(db)
            assert ids(db) == list(range(30))
        with connect(home) as db:  # what was written on the full disk can be read
            db.start_all()
            caught_up(db)
            assert ids(db) == list(range(30))


# -- forgotten by the brokers -----------------------------------------------------------------------------


def test_a_group_whose_offsets_have_expired_gets_them_back_and_the_checkpoint_says_where_to_go_on(
    begun: tuple[Path, str, str], cluster: Cluster
) -> None:
    home, source, topic = begun
    assert cluster.committed(source, topic) == {0: 10}
    for future in cluster.admin.delete_consumer_groups([source]).values():
        future.result(30)
    assert cluster.committed(source, topic) == {0: -1001}
    cluster.produce(topic, events(range(10, 15)))
    with connect(home) as db:
        db.start_all()
        caught_up(db)
        assert ids(db) == list(range(15))
    assert cluster.committed(source, topic) == {0: 15}


# -- clocks -----------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_makes_no_duration_negative_and_no_state_flap(
    begun: tuple[Path, str, str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, topic = begun
    real, day = time.time, 86_400
    with connect(home) as db:
        db.start_all()
        with catalog_of(db) as catalog:
            before = len(catalog.history("v"))
        collector = db.collector()
        for number, jump in enumerate((-day, day, 0)):
            monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
            cluster.produce(topic, events(range(10 + number, 11 + number)))
            caught_up(db)
            assert all(each.lag_s == 0.0 for each in db.lag())
            negative = [
                sample
                for family in collector.collect()
                for sample in family.samples
                if sample.value < 0 and not sample.name.endswith("_created")
            ]
            assert negative == []
        assert ids(db) == list(range(13))
        assert all(row[0] >= 0 for row in rows(db, "SELECT duration_ms FROM forebay_catalog.batches"))
        with catalog_of(db) as catalog:
            assert catalog.history("v")[before:] == []
            assert catalog.source_errors()[0].errors_per_second == 0
