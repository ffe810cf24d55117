"""Ending and coming back: a restart goes on where the checkpoint stands, nothing twice, nothing lost."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sessions import caught_up, checkpoint_of, checkpointed, connect, create_source, events, name, notes, rows
from support import Cluster

from forebay.errors import CheckpointError, ObjectExistsError, SecretMissingError
from forebay.runtime.session import Session

# Without event time: every batch has records in it, so the last one is never an empty one.
TIMELESS = "id BIGINT NOT NULL, k STRING, v BIGINT"


def script(cluster: Cluster, source: str, topic: str) -> str:
    return f"""
        {create_source(cluster, source, topic, TIMELESS)};
        CREATE MATERIALIZED VIEW plain AS SELECT id, v FROM {source};
        CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM {source} GROUP BY k;
    """


def assert_exact(db: Session, count: int) -> None:
    """The views hold events 0 to count, each once."""
    assert rows(db, "SELECT count(*), count(DISTINCT id), sum(v) FROM plain") == [
        (count, count, sum(range(count)))
    ]
    assert rows(db, "SELECT * FROM sums ORDER BY k") == [
        ("a", len(range(0, count, 2)), sum(range(0, count, 2))),
        ("b", len(range(1, count, 2)), sum(range(1, count, 2))),
    ]


def account(db: Session) -> dict[str, tuple[int, int]]:
    return {query.view: (query.records, query.rejected) for query in db.queries()}


def test_a_process_that_was_killed_while_it_began_its_first_batch_leaves_nothing_in_the_way(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(3), name("src"), tmp_path / "home"
    drafts = [home / "sources" / source / "read" / "checkpoint" / "offsets" / ".0.half.tmp"]
    for draft in drafts:  # as Spark leaves it
        draft.parent.mkdir(parents=True)
        draft.write_text("v1\n")
    cluster.produce(topic, events(range(30)))
    with connect(home) as db:
        db.execute(script(cluster, source, topic))
        caught_up(db)
        assert_exact(db, 30)
    assert not any(draft.exists() for draft in drafts)


def test_a_restart_goes_on_where_it_stood_and_definitions_are_kept(tmp_path: Path, cluster: Cluster) -> None:
    topic, source, home = cluster.make_topic(3), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(30)))
    with connect(home) as db:
        done = [result.done for result in db.execute(script(cluster, source, topic))]
        assert done == [f"source {source} created", "view plain created", "view sums created"]
        caught_up(db)
    assert checkpointed(home, "plain", topic) == cluster.committed(source, topic) == {0: 10, 1: 10, 2: 10}

    cluster.produce(topic, [*events(range(30, 60)), "junk"])
    cluster.commit(source, topic, {0: 0, 1: 0, 2: 0})  # the checkpoint is the truth, the group a mirror
    with connect(home) as db:
        assert account(db) == {"plain": (30, 0), "sums": (30, 0)}
        assert [query.state for query in db.queries()] == ["stopped", "stopped"]
        done = [result.done for result in db.execute(script(cluster, source, topic))]
        assert done == [
            f"source {source} exists already",
            "view plain goes on where it stood",
            "view sums goes on where it stood",
        ]
        caught_up(db)
        assert_exact(db, 60)
        assert account(db) == {"plain": (61, 1), "sums": (61, 1)}
        assert cluster.committed(source, topic) == {0: 21, 1: 20, 2: 20}

        again = db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS plain AS SELECT v FROM nowhere")
        assert again[0].done == "view plain is running already"
        with pytest.raises(ObjectExistsError, match="defined differently"):
            db.execute(f"CREATE MATERIALIZED VIEW plain AS SELECT id FROM {source}")
        with pytest.raises(ObjectExistsError, match="defined differently"):
            db.execute(f"CREATE SOURCE {source} (other BIGINT) FROM DATAGEN ()")
        with pytest.raises(ObjectExistsError, match="is a source"):
            db.execute(f"CREATE MATERIALIZED VIEW {source} AS SELECT id FROM {source}")
        assert_exact(db, 60)

        # A replacement that Spark refuses leaves the old view as it was; one that it takes begins where the source did.
        for wrong in ("nosuch", "id, id"):
            with pytest.raises(Exception, match="FB1"):
                db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW plain AS SELECT {wrong} FROM {source}")
        assert_exact(db, 60)
        db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW plain AS SELECT id + 1 AS next FROM {source}")
        cluster.produce(topic, events([60]))
        caught_up(db)
        assert rows(db, "SELECT next FROM plain ORDER BY next") == [(number,) for number in range(1, 62)]
        assert [d.split()[1] for (d,) in rows(db, "SHOW CREATE VIEW plain")] == ["MATERIALIZED"]


def test_if_not_exists_keeps_the_definition_that_is_there(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    with connect(tmp_path) as db:
        db.execute(create_source(cluster, source, topic))
    with connect(tmp_path) as db:
        db.execute(f"CREATE SOURCE IF NOT EXISTS {source} (other BIGINT) FROM DATAGEN ()")
        assert [(s.connector, s.columns) for s in db.sources()] == [("kafka", ("id", "k", "v", "ts"))]
        db.execute(f"CREATE OR REPLACE SOURCE {source} (other BIGINT) FROM DATAGEN ()")
        assert [(s.connector, s.columns) for s in db.sources()] == [("datagen", ("other",))]


def test_a_batch_that_is_in_the_table_but_not_in_the_checkpoint_is_neither_doubled_nor_left_uncounted(
    tmp_path: Path, cluster: Cluster
) -> None:
    """The moment between the Delta commit and Spark's commit log, and the catalog further behind still."""
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(20)))
    with connect(home) as db:
        db.execute(script(cluster, source, topic))
        caught_up(db)
        with (
            sqlite3.connect(home / "catalog.db") as live,
            sqlite3.connect(tmp_path / "catalog.before") as copy,
        ):
            live.backup(copy)
        copy.close()
        live.close()
        for first in (20, 40):
            cluster.produce(topic, [*events(range(first, first + 20)), "junk", "more junk"])
            caught_up(db)

    shutil.copy(tmp_path / "catalog.before", home / "catalog.db")
    assert checkpoint_of(home, "plain") == checkpoint_of(home, "sums")
    commits = checkpoint_of(home, "plain") / "commits"
    last = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
    assert last >= 2
    (commits / str(last)).unlink()
    with connect(home) as db:
        assert account(db) == {"plain": (20, 0), "sums": (20, 0)}
        db.execute(script(cluster, source, topic))
        caught_up(db)
        assert_exact(db, 60)
        assert account(db) == {"plain": (64, 4), "sums": (64, 4)}
        assert "rejected.MalformedPayload: 4" in notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
        cluster.produce(topic, events(range(60, 70)))
        caught_up(db)
        assert_exact(db, 70)
        assert account(db) == {"plain": (74, 4), "sums": (74, 4)}


def test_a_table_without_a_position_or_a_position_without_its_table_is_refused(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(6)))
    with connect(tmp_path) as db:
        db.execute(script(cluster, source, topic))
        caught_up(db)
    statements = script(cluster, source, topic).split(";")
    shutil.move(tmp_path / "views" / "sums" / "table", tmp_path / "away")
    with connect(tmp_path) as db:
        db.execute(statements[0])
        with pytest.raises(CheckpointError, match="table of view 'sums' is gone"):
            db.execute(statements[2])
    shutil.move(tmp_path / "away", tmp_path / "views" / "sums" / "table")
    shutil.rmtree(tmp_path / "sources" / source / "read")
    with connect(tmp_path) as db:
        for statement in statements[1:3]:
            with pytest.raises(CheckpointError, match=r"checkpoint of view '(plain|sums)' is gone"):
                db.execute(statement)
        db.execute("DROP MATERIALIZED VIEW plain; DROP MATERIALIZED VIEW sums")
        assert list((tmp_path / "views").iterdir()) == []


def test_a_checkpoint_that_is_gone_after_an_orderly_stop_is_made_anew(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(20)))
    with connect(tmp_path) as db:
        db.execute(script(cluster, source, topic))
        caught_up(db)
    shutil.rmtree(checkpoint_of(tmp_path, "plain"))
    cluster.produce(topic, events(range(20, 30)))
    with connect(tmp_path) as db:
        db.execute(script(cluster, source, topic))
        caught_up(db)
        assert_exact(db, 30)


def test_a_secret_is_given_anew_after_a_restart(tmp_path: Path, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(3)))
    create = (
        f"CREATE SOURCE {source} (id BIGINT) FROM KAFKA (brokers = '{cluster.bootstrap_servers}', "
        f"topic = '{topic}', 'kafka.sasl.password' = 'hunter2') FORMAT JSON"
    )
    view = f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}"
    with connect(tmp_path) as db:
        db.execute(create)
    with connect(tmp_path) as db:
        assert [s.name for s in db.sources()] == [source]  # reads the definition, secrets masked
        with pytest.raises(SecretMissingError, match=r"kafka\.sasl\.password"):
            db.execute(view)
        assert db.sql("SHOW VIEWS").rows() == []
        db.execute(create)
        db.execute(view)
        caught_up(db)
        assert len(rows(db, "SELECT * FROM v")) == 3
    found = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert found == []
