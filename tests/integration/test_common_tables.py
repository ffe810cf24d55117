"""Members of a shared group that have one table for all: each record is in it once, whoever comes, goes, and reads again.

Members that are killed and frozen are in tests/chaos/test_group_members.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sessions import connect, create_source, events, name, notes, rows
from support import Cluster
from waiting import eventually

from forebay import Session
from forebay.errors import AlreadyRunningError, CheckpointError, ObjectExistsError, UnsupportedSqlError

COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"
QUERY = "SELECT id, v FROM s WHERE v % 10 < 9"  # some records have no row in the table


def member(cluster: Cluster, home: Path, topic: str, group: str) -> Session:
    session = connect(home)
    options = {"group_id": group, "group_mode": "shared", "session_timeout_ms": 6000}
    session.execute(create_source(cluster, "s", topic, COLUMNS, **options))
    return session


def view(lake: Path, query: str = QUERY) -> str:
    return f"CREATE MATERIALIZED VIEW common WITH (location = '{lake}') AS {query}"


def ids(lake: Path) -> list[int]:
    return sorted(DeltaTable(str(lake)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def wanted(count: int) -> list[int]:
    return [number for number in range(count) if number % 10 < 9]


def has(lake: Path, count: int) -> None:
    eventually(lambda: len(ids(lake)) >= len(wanted(count)), f"{count} records are read", 60)
    assert ids(lake) == wanted(count), "each record once"


def assigned(session: Session) -> int:
    line = next(
        line for line in notes(session, "DESCRIBE EXTENDED SOURCE s") if line.startswith("assigned: ")
    )
    return 0 if line == "assigned: none" else line.count(",") + 1


def test_members_of_a_group_append_to_one_table_and_none_repeats_what_it_has(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, group, lake = cluster.make_topic(4), name("common"), tmp_path / "lake" / "rows"
    cluster.produce(topic, events(range(200)))
    with member(cluster, tmp_path / "one", topic, group) as one:
        one.execute(view(lake))
        has(lake, 200)
        with member(cluster, tmp_path / "two", topic, group) as two:
            two.execute(view(lake))
            eventually(lambda: assigned(one) == 2 == assigned(two), "each has two partitions", 30)
            cluster.produce(topic, events(range(200, 400)))
            has(lake, 400)
            assert (
                rows(one, "SELECT count(*) FROM common")
                == rows(two, "SELECT count(*) FROM common")
                == [(360,)]
            )
        cluster.produce(topic, events(range(400, 480)))  # two has left
        has(lake, 480)
    # As if both had been killed after the table had their batches, and before the group did.
    cluster.commit(group, topic, {0: 50, 1: 119, 2: 120, 3: 0})
    cluster.produce(topic, events(range(480, 600)))
    with member(cluster, tmp_path / "three", topic, group) as three:
        three.execute(view(lake))  # has read nothing, and finds out by the table
        has(lake, 600)
        eventually(lambda: sum(cluster.committed(group, topic).values()) == 600, "the group has all", 30)
    cluster.commit(group, topic, dict.fromkeys(range(4), 20))
    cluster.produce(topic, events(range(600, 700)))
    with connect(tmp_path / "two") as two:  # where others went on, it goes on behind them
        two.execute("START VIEW common")
        has(lake, 700)
        eventually(lambda: sum(cluster.committed(group, topic).values()) == 700, "the group has all", 30)


def test_a_table_for_all_members_what_is_refused_and_what_drop_leaves(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, group, lake = cluster.make_topic(2), name("common"), tmp_path / "lake" / "rows"
    cluster.produce(topic, events(range(40)))
    with member(cluster, tmp_path / "one", topic, group) as one:
        one.execute(view(lake))
        has(lake, 40)
        with member(cluster, tmp_path / "two", topic, group) as two:
            with pytest.raises(ObjectExistsError, match="another query than this view"):
                two.execute(view(lake, "SELECT id, v FROM s"))
            with pytest.raises(ObjectExistsError, match="there is something at") as groups:
                two.execute(view(lake, "SELECT k, count(*) AS n FROM s GROUP BY k EMIT CHANGES"))
            assert "location of its own in each home" in groups.value.remedy
            with pytest.raises((ObjectExistsError, UnsupportedSqlError)):
                two.execute(view(lake, "SELECT DISTINCT k FROM s"))
            assert two.queries() == [], "a statement that fails leaves nothing"
            assert ids(lake) == wanted(40), "and takes nothing away"
        with (
            member(cluster, tmp_path / "other", topic, name("another")) as other,
            pytest.raises(ObjectExistsError, match="another group than this view"),
        ):
            other.execute(view(lake))
        with pytest.raises(ObjectExistsError, match="rows of all members are of one query"):
            one.execute(view(lake, "SELECT id, v FROM s").replace("CREATE", "CREATE OR REPLACE"))
        dropped = one.sql("DROP MATERIALIZED VIEW common")
        assert any(f"the table at {lake} stays" in note for note in dropped.notes)
        assert ids(lake) == wanted(40)
        cluster.produce(topic, events(range(40, 60)))
        one.execute(view(lake))  # it is a member again
        has(lake, 60)


def test_a_member_whose_checkpoint_is_lost_is_recovered_from_the_group_and_the_table(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, group, lake = cluster.make_topic(2), name("common"), tmp_path / "lake" / "rows"
    home = tmp_path / "one"
    cluster.produce(topic, events(range(40)))
    with member(cluster, home, topic, group) as one:
        one.execute(view(lake))
        has(lake, 40)
    shutil.rmtree(home / "sources" / "s" / "read")
    cluster.produce(topic, events(range(40, 60)))
    with connect(home) as one:
        with pytest.raises(CheckpointError, match="the checkpoint of view 'common' is gone"):
            one.execute("START VIEW common")
        with pytest.raises(UnsupportedSqlError, match="cannot be made anew"):
            one.recover("common", rebuild=True)
        one.recover("common")
        has(lake, 60)
        with pytest.raises(AlreadyRunningError), connect(home) as again:
            again.execute("START VIEW common")  # a home is still one process's
