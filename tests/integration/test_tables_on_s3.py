"""Tables in an object store, on a real S3 server: what works in a home works there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from s3 import SECRET, S3Server, s3_server
from sessions import PATIENCE_S, caught_up, connect, create_source, events, name, notes, rows
from support import Cluster
from waiting import eventually

import forebay
from forebay.errors import AlreadyRunningError, ObjectExistsError, OptionValueError, StorageError
from forebay.object_path import ObjectPath
from forebay.source.accounts import Span
from forebay.source.parquet_file import ParquetFile
from forebay.views import tidy
from forebay.views.common_table import CommonTable, OffsetsTakenError
from forebay.views.lease import TableLease

WINDOWS = (
    "SELECT k, window_start, count(*) AS n, sum(v) AS total FROM TUMBLE(TABLE {source}, DESCRIPTOR(ts), INTERVAL '1' MINUTE) "
    "GROUP BY k, window_start, window_end"
)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        patch = pytest.MonkeyPatch()
        for key, value in server.environment.items():
            patch.setenv(key, value)
        yield server
        patch.undo()


def on_s3(s3: S3Server, home: Path) -> forebay.Session:
    return connect(home, storage=s3.url(home.parent.name))


def test_views_of_every_kind_have_their_tables_there_and_go_on_after_a_restart(
    s3: S3Server, cluster: Cluster, tmp_path: Path
) -> None:
    source, topic = name("src"), cluster.make_topic(partitions=2)
    all_rows, keys, distinct = name("rows"), name("keys"), name("distinct")
    with on_s3(s3, tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest") + " ON ERROR = 'skip'")
        db.execute(f"""
            CREATE MATERIALIZED VIEW {all_rows} AS SELECT id, k FROM {source};
            CREATE MATERIALIZED VIEW {keys} AS SELECT k, count(*) AS n FROM {source} GROUP BY k;
            CREATE MATERIALIZED VIEW {distinct} AS SELECT DISTINCT k FROM {source}
        """)
        cluster.produce(topic, [*events(range(100)), "{broken"])
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {all_rows}")) == list(range(100))
        assert sorted(rows(db, f"SELECT k, n FROM {keys}")) == [("a", 50), ("b", 50)]
        assert sorted(rows(db, f"SELECT k FROM {distinct}")) == [("a",), ("b",)]
        # A SELECT that only Spark can answer, over files that its JVM cannot open.
        joined = f"SELECT r.k, count(DISTINCT r.id) FROM {all_rows} r JOIN {keys} k ON r.k = k.k GROUP BY r.k"
        assert sorted(rows(db, joined)) == [("a", 50), ("b", 50)]
        assert f"Table: {s3.url(tmp_path.name)}/{all_rows}/table" in notes(
            db, f"DESCRIBE EXTENDED VIEW {all_rows}"
        )
    cluster.produce(topic, events(range(100, 150)))
    with on_s3(s3, tmp_path / "home") as db:
        for view in (all_rows, keys, distinct):
            db.execute(f"START VIEW {view}")
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {all_rows}")) == list(range(150))
        assert sorted(rows(db, f"SELECT k, n FROM {keys}")) == [("a", 75), ("b", 75)]
        with db.subscribe(all_rows, timeout=0.5) as changes:
            assert sum(batch.num_rows for batch in changes) == 150
        table = DeltaTable(f"{s3.url(tmp_path.name)}/{all_rows}/table")
        assert table.to_pyarrow_table().num_rows == 150  # for everybody else, too
        db.execute(f"DROP MATERIALIZED VIEW {all_rows}")
        assert not (s3.folder / s3.bucket / tmp_path.name / all_rows / "table" / "_delta_log").exists()
    # No file of a table is in the home, and no secret.
    home = tmp_path / "home"
    assert not [path for path in home.rglob("*.parquet") if "checkpoint" not in path.parts]
    assert not [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_view_says_where_its_table_is(s3: S3Server, cluster: Cluster, tmp_path: Path) -> None:
    source, view, topic = name("src"), name("view"), cluster.make_topic(partitions=1)
    place = s3.url(f"{tmp_path.name}/lake/trades")
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest"))
        create = f"CREATE MATERIALIZED VIEW {{}} WITH (location = '{place}') AS SELECT id FROM {source}"
        db.execute(create.format(view))
        cluster.produce(topic, events(range(10)))
        caught_up(db)
        assert DeltaTable(place).to_pyarrow_table().num_rows == 10
        with pytest.raises(ObjectExistsError, match="there is something at"):
            db.execute(create.format(name("other")))
        assert len(rows(db, f"SELECT id FROM {view}")) == 10
        for wrong in (f"s3://user:pass@{s3.bucket}/x", "hdfs://name/x", "s3://"):
            with pytest.raises(OptionValueError):
                db.execute(
                    f"CREATE MATERIALIZED VIEW {name('v')} WITH (location = '{wrong}') AS SELECT id FROM {source}"
                )
        with pytest.raises(StorageError, match="no such bucket"):
            db.execute(
                f"CREATE MATERIALIZED VIEW {name('v')} WITH (location = 's3://nobody-made-this/x') AS SELECT id FROM {source}"
            )


def test_storage_that_is_away_is_waited_for_and_the_group_is_not_ahead(
    s3: S3Server, cluster: Cluster, tmp_path: Path
) -> None:
    source, topic = name("src"), cluster.make_topic(partitions=1)
    away, here = name("away"), name("here")
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, auto_offset_reset="earliest"))
        db.execute(f"""
            CREATE MATERIALIZED VIEW {away} WITH (location = '{s3.url(away)}') AS SELECT id FROM {source};
            CREATE MATERIALIZED VIEW {here} AS SELECT id FROM {source}
        """)
        cluster.produce(topic, events(range(10)))
        caught_up(db)
        s3.stop()
        cluster.produce(topic, events(range(10, 20)))
        eventually(
            lambda: len(rows(db, f"SELECT id FROM {here}")) == 20, "the other view goes on", PATIENCE_S
        )
        waiting = eventually(
            lambda: next((q for q in db.queries() if q.view == away and q.state == "retrying"), None),
            "the view waits",
            PATIENCE_S,
        )
        assert waiting.message
        assert cluster.committed(source, topic) == {0: 10}
        s3.start()
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {away}")) == list(range(20))
        eventually(lambda: cluster.committed(source, topic) == {0: 20}, "the group follows")


def test_a_second_driver_is_refused_also_with_a_home_of_its_own(s3: S3Server, tmp_path: Path) -> None:
    table = ObjectPath(s3.url(f"{tmp_path.name}/table"))
    first = TableLease("v", table, tmp_path / "one")
    first.acquire([])
    second = TableLease("v", table, tmp_path / "two")
    with pytest.raises(AlreadyRunningError, match="one"):
        second.acquire([])
    first.release()
    second.acquire([])
    second.check()
    second.release()


def test_a_driver_that_was_held_up_writes_nothing_after_another_took_over(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.views import lease
    from forebay.views.delta_entry import write_entry

    url = s3.url(f"{tmp_path.name}/table")
    table = ObjectPath(url)
    import pyarrow as pa

    DeltaTable.create(url, schema=pa.schema([("id", pa.int64())]))
    first = TableLease("v", table, tmp_path / "one")
    first.acquire([table])
    monkeypatch.setattr(lease, "LASTS_S", 0.0)  # the first did not answer for so long
    second = TableLease("v", table, tmp_path / "two")
    second.acquire([table])
    with pytest.raises(FileExistsError):  # what the first had begun
        write_entry(table, 1, [], {})
    monkeypatch.setattr(lease, "FRESH_S", 0.0)
    with pytest.raises(AlreadyRunningError, match="two"):
        first.check()
    second.check()
    first.release()
    second.check()
    second.release()


def test_members_of_a_group_append_to_one_table_there_and_merge_its_files(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 8)
    place = ObjectPath(f"{s3.url(name('common'))}/table")
    schema = pa.schema([("n", pa.int64())])
    members = [CommonTable(place, member, tmp_path / member) for member in ("one", "two")]
    for member in members:
        member.create_or_join(schema, "g", "SELECT n FROM s")

    def add(batch: int, first: int, end: int) -> None:
        file = ParquetFile(place, "part")
        file.add(pa.record_batch([pa.array(range(first, end))], schema=schema))
        written = file.close()
        assert written is not None
        spans = [Span("t", 0, first, end)]
        members[batch % 2].add_once([written], f"q{batch % 2}", batch, {}, spans, {})

    add(0, 0, 1)
    for batch in range(1, 24):  # each reads again what the other has added last
        with pytest.raises(OffsetsTakenError, match=rf"t-0 \[{batch - 1}, {batch}\)"):
            add(batch, batch - 1, batch + 1)
        add(batch, batch, batch + 1)
    table = DeltaTable(str(place))
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == list(range(24))
    assert len(table.file_uris()) < 16, "small files are merged"
    found = {path.name for path in (s3.folder / s3.bucket).rglob("tidying.json")}
    assert found == {"tidying.json"}, "by whoever holds the lease for that"
