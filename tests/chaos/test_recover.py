"""A checkpoint that is lost: views go on where their tables stand, and every record is in them once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pipelines import Pipeline, table_of
from sessions import EVENTS, caught_up, connect, create_source, event, rows
from support import Cluster, unique
from waiting import eventually

from forebay.errors import CheckpointError
from forebay.runtime.session import Session

WINDOWS = "SELECT window_start AS w, count(*) AS n FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"


def lose_checkpoints(home: Path) -> None:
    """All that says where views stand, but their tables."""
    for folder in [
        *home.glob("sources/*/read"),
        *home.glob("views/*/checkpoint"),
        *home.glob("views/*/alone"),
    ]:
        shutil.rmtree(folder)


def ids(db: Session, view: str) -> list[int]:
    return sorted(row[0] for row in rows(db, f"SELECT id FROM {view}"))


@pytest.mark.timeout(400)
def test_views_whose_checkpoint_is_lost_go_on_where_their_tables_stand(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, source, home, script = (
        cluster.make_topic(2),
        unique("src").replace("-", "_"),
        tmp_path / "home",
        tmp_path / "p.sql",
    )
    statements = [
        create_source(cluster, source, topic, EVENTS, auto_offset_reset="earliest"),
        f"CREATE MATERIALIZED VIEW plain AS SELECT id FROM {source}",
        f"CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n FROM {source} GROUP BY k",
        f"CREATE MATERIALIZED VIEW once AS {WINDOWS.format(source)} EMIT ON WINDOW CLOSE LATE DATA TO late_rows",
        f"CREATE MATERIALIZED VIEW by_spark AS SELECT id, upper(k) AS k FROM {source}",
        f"CREATE MATERIALIZED VIEW kept_by_spark AS SELECT DISTINCT id FROM {source}",
    ]
    script.write_text(";\n".join(statements) + ";\n")
    cluster.produce(topic, [event(number) for number in range(50)])
    pipeline = Pipeline(script, home, tmp_path / "log")
    eventually(lambda: "kept_by_spark" in pipeline.log.read_text(), "all views are there", timeout=120)
    cluster.produce(topic, [event(number) for number in range(50, 120)])
    for view in ("plain", "by_spark", "kept_by_spark"):
        eventually(lambda view=view: table_of(home, view).version() > 0, f"{view} has rows", timeout=120)
    pipeline.kill(whole_group=True)
    lose_checkpoints(home)
    with connect(home) as db:
        with pytest.raises(CheckpointError, match="is gone") as caught:
            db.start_all()
        assert "forebay recover" in caught.value.remedy
        for view in ("plain", "sums", "once", "by_spark"):
            assert "where it stood" in db.recover(view)[0]
        with pytest.raises(CheckpointError, match="Spark kept") as refused:
            db.recover("kept_by_spark")
        assert "--rebuild" in refused.value.remedy
        [done, *_] = db.recover("kept_by_spark", rebuild=True)
        assert "made anew" in done
        cluster.produce(topic, [event(number) for number in range(120, 200)])
        caught_up(db)
        everything = list(range(200))
        assert ids(db, "plain") == ids(db, "by_spark") == ids(db, "kept_by_spark") == everything
        assert sum(row[0] for row in rows(db, "SELECT n FROM sums")) == 200
        given_out, late = rows(db, "SELECT n FROM once"), rows(db, "SELECT id FROM late_rows")
        assert late == []
        assert sorted(row[0] for row in given_out) == [60, 60, 60]  # the fourth minute is open
        assert sum(cluster.committed(source, topic).values()) == 200
