"""Groups that several processes share: each reads its share, and nothing is lost or repeated when partitions move.

The processes are sessions on homes of their own; those that are killed and frozen are in tests/chaos/test_group_members.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions import connect, create_source, events, name, notes, rows
from support import NUMBERS, Cluster
from waiting import eventually

from forebay.errors import GroupInUseError, OptionConflictError, UnsupportedSqlError
from forebay.source.datasource import ForebaySource
from forebay.source.spark_types import to_spark

COLUMNS = "id BIGINT NOT NULL, k STRING, v BIGINT"


class Member:
    """A session that shares the group, with a view of its rows and one of its groups."""

    def __init__(self, cluster: Cluster, home: Path, topic: str, group: str, **options: str | int) -> None:
        self.home, self.topic = home, topic
        self.session = connect(home)
        given: dict[str, str | int] = {"group_id": group, "group_mode": "shared", "session_timeout_ms": 6000}
        self.session.execute(create_source(cluster, "s", topic, COLUMNS, **(given | options)))
        self.session.execute("CREATE MATERIALIZED VIEW plain AS SELECT id, v FROM s")
        self.session.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k EMIT CHANGES"
        )

    def ids(self) -> list[int]:
        return sorted(row[0] for row in rows(self.session, "SELECT id FROM plain"))

    def summed(self) -> int:
        return sum(row[0] for row in rows(self.session, "SELECT n FROM sums"))

    def described(self) -> list[str]:
        return notes(self.session, "DESCRIBE EXTENDED SOURCE s")

    def assigned(self) -> list[int]:
        found = next((line for line in self.described() if line.startswith("assigned: ")), "assigned: none")
        listed = found.removeprefix("assigned: ")
        return [] if listed == "none" else [int(each.rpartition("-")[2]) for each in listed.split(", ")]

    def close(self) -> None:
        self.session.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    started: list[Member] = []
    yield started
    for member in started:
        member.close()


def read_by_all(members: list[Member], count: int) -> None:
    """Until every record is in somebody's table, each in one."""
    eventually(lambda: sum(len(each.ids()) for each in members) >= count, f"{count} records are read", 60)
    assert sorted(number for each in members for number in each.ids()) == list(range(count))
    eventually(lambda: sum(each.summed() for each in members) == count, "the groups have as many", 30)


def test_members_divide_the_partitions_and_each_record_is_in_one_home(
    cluster: Cluster, tmp_path: Path, members: list[Member]
) -> None:
    topic, group = cluster.make_topic(4), name("shared")
    cluster.produce(topic, events(range(200)))
    members.append(Member(cluster, tmp_path / "one", topic, group))
    read_by_all(members, 200)
    members[0].session.execute("PAUSE SOURCE s")  # partitions of a source that is paused go like any others
    members.append(Member(cluster, tmp_path / "two", topic, group))
    one, two = members
    eventually(lambda: len(two.assigned()) == 2 == len(one.assigned()), "each has two partitions", 20)
    one.session.execute("RESUME SOURCE s")
    assert sorted(one.assigned() + two.assigned()) == [0, 1, 2, 3]
    cluster.produce(topic, events(range(200, 400)))
    read_by_all(members, 400)
    assert len(two.ids()) == 100, "what the first had read is not read again"

    two.session.close()  # it leaves: the other goes on with all of it
    cluster.produce(topic, events(range(400, 600)))
    began = time.monotonic()
    eventually(lambda: len(one.ids()) == 500, "the one that is left reads all", 30)
    print(f"flowing again {time.monotonic() - began:.1f} s after the other left")
    two.session = connect(two.home)
    assert sorted(one.ids() + two.ids()) == list(range(600))
    eventually(lambda: sum(cluster.committed(group, topic).values()) == 600, "the group has all", 10)


def test_a_home_that_shares_its_group(cluster: Cluster, tmp_path: Path, members: list[Member]) -> None:
    """One session for all that is to be seen in one: its share, what is refused, leaving and coming back."""
    topic, group = cluster.make_topic(4), name("shared")
    cluster.produce(topic, events(range(100)))
    cluster.commit(group, topic, {0: 5, 1: 5, 2: 0, 3: 0})  # ten records are somebody else's
    member = Member(cluster, tmp_path / "one", topic, group)
    members.append(member)
    session = member.session
    session.wait(until_caught_up=True, timeout=60)
    ours = [number for number in range(100) if number % 4 > 1 or number // 4 >= 5]
    assert member.ids() == ours, "it begins where the group is"

    lines = member.described()
    assert member.assigned() == [0, 1, 2, 3]
    assert any(line.startswith("generation: 1") for line in lines)
    assert any(line.startswith("last rebalance: assigned: ") for line in lines)
    assert not any("lost" in line for line in lines), "what others have read is no loss"
    found = {
        family.name: family.samples[0].value
        for family in session.collector().collect()
        if family.name.startswith(("forebay_source_assigned", "forebay_source_rebalances"))
    }
    assert found["forebay_source_assigned_partitions"] == 4.0
    assert found["forebay_source_rebalances"] >= 1.0

    session.execute("CREATE MATERIALIZED VIEW later AS SELECT id FROM s WHERE id % 2 = 0")
    even = [number for number in ours if number % 2 == 0]
    eventually(
        lambda: sorted(row[0] for row in rows(session, "SELECT id FROM later")) == even,
        "a view that comes later has what its home has", 30,
    )  # fmt: skip
    with pytest.raises(UnsupportedSqlError, match="streaming query of its own"):
        session.execute("CREATE MATERIALIZED VIEW own AS SELECT DISTINCT k FROM s")
    with pytest.raises(UnsupportedSqlError, match="begins where its group is"):
        session.execute("CREATE MATERIALIZED VIEW late WITH (start = 'now') AS SELECT id FROM s")
    with pytest.raises(OptionConflictError, match="needs a session"):
        ForebaySource({"bootstrap.servers": "x", "topic": topic, "group.id": group, "group.mode": "shared",
                       "format": "json"}).streamReader(to_spark(NUMBERS))  # fmt: skip

    for view in ("plain", "sums", "later"):
        session.execute(f"STOP VIEW {view}")
    assert cluster.admin.describe_consumer_groups([group])[group].result(10).members == []
    cluster.commit(group, topic, dict.fromkeys(range(4), 25))
    cluster.produce(topic, events(range(100, 140)))
    cluster.commit(group, topic, {0: 30, 1: 25, 2: 25, 3: 25})  # somebody else has read five meanwhile
    for view in ("plain", "sums", "later"):
        session.execute(f"START VIEW {view}")
    now = ours + [number for number in range(100, 140) if number % 4 or number // 4 >= 30]
    eventually(lambda: member.ids() == now, "it goes on at the group's offset", 30)
    eventually(
        lambda: rows(session, "SELECT count(*) FROM later") == [(len([n for n in now if n % 2 == 0]),)],
        "so do the others", 30,
    )  # fmt: skip


def test_a_source_that_reads_alone_is_told_who_else_is_in_its_group(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = cluster.make_topic(1), name("alone")
    other = cluster.consumer(group, **{"client.id": "somebody"})
    try:
        other.subscribe([topic])
        eventually(lambda: other.poll(0.1) is None and other.assignment(), "it has joined")
        with connect(tmp_path / "home") as session:
            session.execute(create_source(cluster, "s", topic, COLUMNS, group_id=group))
            with pytest.raises(GroupInUseError, match="'somebody' on") as told:
                session.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
            assert "group.mode = 'shared'" in told.value.remedy
            assert session.queries() == [], "a statement that fails leaves nothing"
    finally:
        other.close()
