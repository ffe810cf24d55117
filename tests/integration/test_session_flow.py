"""From a topic into views: what flows, what is rejected, what the group says, what results look like."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pandas as pd
import polars as pl
import psutil
import pyarrow as pa
import pytest
from rich.console import Console
from sessions import (
    BASE_MS,
    caught_up,
    checkpointed,
    create_source,
    event,
    events,
    name,
    notes,
    rows,
)
from support import Cluster
from waiting import eventually

import forebay
from forebay.errors import QueryFailedError, SessionClosedError
from forebay.runtime.session import Session
from forebay.runtime.spark import register
from forebay.views import compaction
from forebay.views.merged import MergedFiles
from forebay.views.table import ViewTable


def drop(db: Session, *sources: str) -> None:
    for source in sources:
        db.execute(f"DROP SOURCE {source} CASCADE")


def test_records_flow_into_a_view_and_bad_ones_are_counted_by_kind_never_null_rows(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(4), name("src"), name("view")
    good = events(range(200))
    bad = [
        '{"id": 1, "k"',  # MalformedPayload
        "",  # MalformedPayload
        '{"k": "no id"}',  # SchemaMismatch: id is NOT NULL
        event(1, v="ten"),  # TypeConversion
        event(1, v=2.5),  # TypeConversion
        event(1, ts="yesterday"),  # TypeConversion
    ]
    cluster.produce(topic, [*good[:100], *bad[:3], *good[100:], *bad[3:]])
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, k, v, ts FROM {source}")
    caught_up(db)

    assert rows(db, f"SELECT count(*), count(DISTINCT id), count(id), min(id), max(id) FROM {view}") == [
        (200, 200, 200, 0, 199)
    ]
    assert rows(db, f"SELECT count(*) FROM {view} WHERE id IS NULL OR k IS NULL OR v IS NULL") == [(0,)]

    told = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    account = told[told.index(f"View {view}:") :]
    size = account.pop(2)
    assert re.fullmatch(r"bytes: [1-9]\d*", size), size
    assert account[1:7] == [
        "records: 206",
        "delivered: 200",
        "rejected: 6",
        "rejected.MalformedPayload: 2",
        "rejected.SchemaMismatch: 1",
        "rejected.TypeConversion: 3",
    ]
    assert account[7].startswith(f"example: {topic}-")
    [status] = [query for query in db.queries() if query.view == view]
    produced = sum(high for _, high in cluster.watermarks(topic).values())
    assert produced == status.records == rows(db, f"SELECT count(*) FROM {view}")[0][0] + status.rejected
    assert (status.state, status.message) == ("running", "")
    drop(db, source)


def test_group_checkpoint_and_lag_say_the_same_partition_by_partition(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(3), name("src"), name("view")
    for partition, count in enumerate((50, 7, 0)):
        cluster.produce(topic, events(range(count)), partition=partition)
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)

    ends = {partition: high for partition, (_, high) in cluster.watermarks(topic).items()}
    assert ends == {0: 50, 1: 7, 2: 0}
    assert checkpointed(db.home, view, topic) == cluster.committed(source, topic) == ends
    lags = [row for row in db.lag() if row.source == source]
    assert [(row.partition, row.committed, row.end, row.lag) for row in lags] == [
        (0, 50, 50, 0),
        (1, 7, 7, 0),
        (2, 0, 0, 0),
    ]
    assert {(row.group, row.topic) for row in lags} == {(source, topic)}

    # With the view gone the lag grows, and the broker's own numbers are still the ones shown.
    db.execute(f"DROP MATERIALIZED VIEW {view}")
    cluster.produce(topic, events(range(5)), partition=2)
    committed, marks = cluster.committed(source, topic), cluster.watermarks(topic)
    assert {row.partition: (row.committed, row.end, row.lag) for row in db.lag() if row.source == source} == {
        number: (committed[number], marks[number][1], marks[number][1] - committed[number])
        for number in range(3)
    }
    assert f"lag.{topic}.2: 5" in notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    drop(db, source)


def test_a_second_view_that_is_behind_holds_the_group_back(db: Session, cluster: Cluster) -> None:
    topic, source = cluster.make_topic(2), name("src")
    fast, stopped = name("fast"), name("stopped")
    cluster.produce(topic, events(range(40)))
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {stopped} AS SELECT id, 1 DIV (id - 60) AS x FROM {source}")
    db.execute(f"CREATE MATERIALIZED VIEW {fast} AS SELECT id FROM {source}")
    caught_up(db)
    assert cluster.committed(source, topic) == {0: 20, 1: 20}

    cluster.produce(topic, events(range(40, 80)))  # 60 divides by zero: one view fails, the other goes on
    with pytest.raises(QueryFailedError, match=stopped):
        db.wait(until_caught_up=False, timeout=60)
    eventually(lambda: checkpointed(db.home, fast, topic) == {0: 40, 1: 40}, "the other view goes on")
    cluster.produce(topic, events(range(80, 90)))
    eventually(lambda: checkpointed(db.home, fast, topic) == {0: 45, 1: 45}, "and on")
    held = checkpointed(db.home, stopped, topic)
    assert held[0] == 20  # where 60 is; a batch of only the other partition's may have come before it
    assert cluster.committed(source, topic) == held
    [status] = [query for query in db.queries() if query.view == stopped]
    assert status.state == "failed"
    assert "FB4001" in status.message

    db.execute(f"DROP MATERIALIZED VIEW {stopped}")
    cluster.produce(topic, events(range(90, 92)))
    caught_up(db)
    assert cluster.committed(source, topic) == {0: 46, 1: 46}
    drop(db, source)


def test_the_group_is_behind_every_view_also_one_that_is_stopped(db: Session, cluster: Cluster) -> None:
    topic, source, early, late = cluster.make_topic(2), name("src"), name("early"), name("late")
    cluster.produce(topic, events(range(100)), partition=0)
    db.execute(create_source(cluster, source, topic))
    for view in (early, late):
        db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    cluster.produce(topic, [event(1)], partition=1)
    caught_up(db)
    db.execute(f"STOP VIEW {late}")
    for partition in range(2):
        cluster.produce(topic, events(range(100, 120)), partition=partition)
    caught_up(db)
    assert checkpointed(db.home, early, topic) == {0: 120, 1: 21}
    assert cluster.committed(source, topic) == checkpointed(db.home, late, topic) == {0: 100, 1: 1}
    db.execute(f"START VIEW {late}")
    caught_up(db)
    assert cluster.committed(source, topic) == {0: 120, 1: 21}
    drop(db, source)


def test_a_first_start_takes_the_offsets_that_the_group_has(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, events(range(20)))
    cluster.commit(source, topic, {0: 4})  # of partition 1 the group knows nothing: auto.offset.reset
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    assert [row for (row,) in rows(db, f"SELECT id FROM {view} ORDER BY id")] == [
        number for number in range(20) if number % 2 or number >= 8
    ]
    drop(db, source)


def test_a_result_comes_in_every_shape(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    cluster.produce(topic, [event(0), event(1, k=None), "junk"])
    db.execute(create_source(cluster, source, topic, include_metadata="true"))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, k, ts, _offset AS at FROM {source}")
    caught_up(db)

    result = db.sql(f"SELECT id, k, at FROM {view} ORDER BY id")
    assert result.fetchall() == [(0, "a", 0), (1, None, 1)]
    assert result.rows() == [{"id": 0, "k": "a", "at": 0}, {"id": 1, "k": None, "at": 1}]
    assert isinstance(result.arrow(), pa.Table)
    assert isinstance(result.df(), pd.DataFrame)
    assert isinstance(result.pl(), pl.DataFrame)
    assert result.df()["at"].sum() == result.pl()["at"].sum() == 1
    assert result.spark().count() == len(result) == 2
    assert "<td>NULL</td>" in result._repr_html_()
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as shown:
        result.show(limit=1, console=console)
    assert "(2 rows, 1 not shown)" in shown.get()

    # A plain SELECT reads a source too, from its beginning and without what does not decode.
    assert rows(db, f"SELECT id, _partition, _offset FROM {source} ORDER BY id") == [(0, 0, 0), (1, 0, 1)]
    [(joined,)] = rows(db, f"SELECT count(*) FROM {view} v JOIN {source} s ON v.id = s.id")
    assert joined == 2
    drop(db, source)


def test_show_describe_and_explain_tell_what_exists(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, events(range(4)))
    db.execute(create_source(cluster, source, topic))
    db.execute(
        f"CREATE MATERIALIZED VIEW {view} AS SELECT k, count(*) AS n FROM {source} GROUP BY k EMIT CHANGES"
    )
    caught_up(db)

    [shown] = [row for row in db.sql("SHOW SOURCES").rows() if row["name"] == source]
    assert (shown["connector"], shown["format"], shown["topic"], shown["group"], shown["views"]) == (
        "kafka", "json", topic, source, view,
    )  # fmt: skip
    assert shown["columns"] == "id, k, v, ts"
    assert [s.columns for s in db.sources() if s.name == source] == [("id", "k", "v", "ts")]
    [shown] = [row for row in db.sql("SHOW VIEWS").rows() if row["name"] == view]
    assert (shown["sources"], shown["emit"], shown["keys"]) == (source, "changes", "k")
    [shown] = [row for row in db.sql("SHOW QUERIES").rows() if row["view"] == view]
    assert (shown["state"], shown["records"], shown["rejected"]) == ("running", 4, 0)
    assert db.sql("SHOW SINKS").rows() == []

    described = db.sql(f"DESCRIBE SOURCE {source}")
    assert described.fetchall()[0] == ("id", "BIGINT", "NO", "")
    assert described.fetchall()[3][:3] == ("ts", "TIMESTAMP", "YES")
    assert "INTERVAL" in described.fetchall()[3][3]
    assert {f"Topic: {topic}", f"Group ID: {source}", "Format: json", "On error: skip"} <= set(
        described.notes
    )
    extended = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
    assert f"topic = {topic}" in extended
    assert "isolation.level = read_committed (default)" in extended
    assert any(line.startswith("Health: Connected to 1 broker(s)") for line in extended)
    assert db.sql(f"DESCRIBE VIEW {view}").fetchall() == [("k", "STRING"), ("n", "BIGINT")]
    extended = notes(db, f"DESCRIBE EXTENDED VIEW {view}")
    assert "state: running" in extended
    assert f"Table: {db.home / 'views' / view / 'table'}" in extended
    assert re.search(
        r"^Files: \d+, [\d,]+ bytes, (last vacuumed 20|never vacuumed)", "\n".join(extended), re.MULTILINE
    )

    [(text,)] = rows(db, f"SHOW CREATE SOURCE {source}")
    assert db.execute(text)[0].done == f"source {source} exists already"
    [(text,)] = rows(db, f"SHOW CREATE VIEW {view}")
    assert db.execute(text)[0].done == f"view {view} is running already"

    steps = dict(rows(db, f"EXPLAIN SELECT * FROM {view} WHERE n > 1"))
    assert (steps["answered by"], steps["columns"]) == ("Arrow, in this process", "k, n")
    steps = dict(rows(db, f"EXPLAIN SELECT upper(k) FROM {view}"))
    assert (steps["answered by"], steps["because of"]) == ("Spark", "UPPER(k)")
    assert "Physical Plan" in steps["plan"]
    steps = dict(
        rows(db, f"EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT k, count(*) AS n FROM {source} GROUP BY k")
    )
    assert (steps["reads"], steps["emit"], steps["keys"]) == (source, "changes", "k")
    steps = dict(rows(db, "EXPLAIN CREATE SOURCE x (id BIGINT) FROM DATAGEN ()"))
    assert steps["connector"] == "datagen"
    assert "x" not in [s.name for s in db.sources()]
    drop(db, source)


def test_a_datagen_source_goes_through_the_same_runtime(db: Session) -> None:
    source, view, sums = name("gen"), name("view"), name("sums")
    db.execute(
        f"""
        CREATE SOURCE {source} (n BIGINT, side STRING, price DOUBLE, ts TIMESTAMP)
        FROM DATAGEN (rows_per_second = 100000, number_of_rows = 5000, 'fields.n.kind' = 'sequence',
                      'fields.side.choices' = 'buy,sell', 'fields.price.min' = '10', 'fields.price.max' = '20');
        CREATE MATERIALIZED VIEW {view} AS SELECT * FROM {source};
        CREATE MATERIALIZED VIEW {sums} AS SELECT side, count(*) AS n FROM {source} GROUP BY side;
        """
    )
    caught_up(db)
    assert rows(db, f"SELECT count(*), count(DISTINCT n), min(n), max(n) FROM {view}") == [
        (5000, 5000, 0, 4999)
    ]
    assert rows(db, f"SELECT count(*) FROM {view} WHERE price < 10 OR price > 20") == [(0,)]
    assert rows(db, f"SELECT sum(n), collect_set(side) FROM {sums}")[0][0] == 5000
    assert [row for (row,) in rows(db, f"SELECT side FROM {sums} ORDER BY side")] == ["buy", "sell"]
    drop(db, source)


def test_a_query_that_starts_adds_nothing_to_what_others_are_sending_to_their_workers(db: Session) -> None:
    """Else a query that starts while another sends a task now and then breaks that task for good."""
    register(db.spark)
    shared = db.spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("forebay")  # type: ignore[operator]
    before = set(shared.dataSourceCls().envVars())
    source, view = name("gen"), name("view")
    db.execute(f"CREATE SOURCE {source} (id BIGINT) FROM DATAGEN (number_of_rows = 100)")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    assert set(shared.dataSourceCls().envVars()) == before
    drop(db, source)


def test_workers_are_forked_from_a_daemon_that_has_the_source_loaded(db: Session) -> None:
    source, view = name("gen"), name("view")
    db.execute(f"CREATE SOURCE {source} (id BIGINT) FROM DATAGEN (number_of_rows = 100)")
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    daemons = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # workers come and go
            daemons.add(tuple(process.cmdline()[-2:]))
    assert ("forebay.source.worker_daemon", "pyspark.worker") in daemons
    drop(db, source)


def test_csv_and_raw_topics_flow_as_well(db: Session, cluster: Cluster) -> None:
    topic, comma, raw = cluster.make_topic(1), name("comma"), name("raw")
    cluster.produce(topic, ["1;one;2026-01-15T10:00:00Z", "x;two;2026-01-15T10:00:00Z", "3;;1768471200000"])
    db.execute(
        f"""
        CREATE SOURCE {comma} (id INT, word STRING, ts TIMESTAMP)
        FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{topic}') FORMAT CSV (delimiter = ';');
        CREATE SOURCE {raw} FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{topic}') FORMAT RAW;
        """
    )
    views = [name("view"), name("view")]
    db.execute(f"CREATE MATERIALIZED VIEW {views[0]} AS SELECT id, word, unix_millis(ts) AS ts FROM {comma}")
    db.execute(f"CREATE MATERIALIZED VIEW {views[1]} AS SELECT CAST(value AS STRING) AS v FROM {raw}")
    caught_up(db)
    assert rows(db, f"SELECT * FROM {views[0]} ORDER BY id") == [(1, "one", BASE_MS), (3, None, BASE_MS)]
    assert len(rows(db, f"SELECT v FROM {views[1]}")) == 3
    drop(db, comma, raw)


def test_a_topic_pattern_and_a_list_of_topics_are_one_source(db: Session, cluster: Cluster) -> None:
    prefix, source, view = name("pattern"), name("src"), name("view")
    for number in range(2):
        cluster.produce(cluster.make_topic(1, name=f"{prefix}-{number}"), events([number]))
    db.execute(
        f"CREATE SOURCE {source} (id BIGINT) FROM KAFKA (brokers = '{cluster.bootstrap_servers}', "
        f"topic_pattern = '{prefix}-.*') FORMAT JSON"
    )
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    cluster.produce(cluster.make_topic(1, name=f"{prefix}-2"), events([2]))  # appears while it runs
    eventually(lambda: rows(db, f"SELECT id FROM {view} ORDER BY id") == [(0,), (1,), (2,)], "all are read")
    assert {row.topic for row in db.lag() if row.source == source} == {f"{prefix}-{n}" for n in range(3)}
    drop(db, source)


def test_a_closed_session_says_so_and_closing_twice_is_fine(tmp_path: Path) -> None:
    session = forebay.connect(home=tmp_path / "home")
    session.close()
    session.close()
    with pytest.raises(SessionClosedError):
        session.sql("SHOW SOURCES")
    with pytest.raises(SessionClosedError):
        _ = session.spark


@pytest.mark.parametrize("columns", ["id", "id, md5(CAST(id AS STRING))"])  # without Spark, and with it
def test_a_select_whose_files_were_merged_before_its_rows_were_asked_for_has_them_all(
    db: Session, columns: str
) -> None:
    source, view = name("gen"), name("view")
    db.execute(
        f"CREATE SOURCE {source} (id BIGINT) FROM DATAGEN (number_of_rows = 100, 'fields.id.kind' = 'sequence')"
    )
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    db.execute(f"STOP VIEW {view}")
    planned = db.sql(f"SELECT {columns} FROM {view}")
    table = ViewTable(db.home / "views" / view / "table")
    opened = table.open()
    files, schema = compaction.data_files(opened), pa.schema(opened.schema().to_arrow())
    known = MergedFiles(table.path, table.path / "_forebay" / "merged")
    compaction.merge(table.path, schema, opened.version(), files, known)
    for file in files:
        (table.path / file.path).unlink()
    assert sorted(row[0] for row in planned.fetchall()) == [*range(100)]
    drop(db, source)
