"""`forebay run` does what its script says, shows what is so, and ends with a code that says how it went."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sessions import events, name
from support import Cluster

SOURCE = "CREATE SOURCE {0} (id BIGINT NOT NULL, v BIGINT) FROM KAFKA (brokers = '{1}', topic = '{2}', group_id = '{0}') FORMAT JSON;\n"


def forebay(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay", *arguments],
        env={**os.environ, "FOREBAY_HOME": str(home), "FOREBAY_MASTER": "local[2]", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


def run(home: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = home.with_suffix(".sql")
    path.write_text(script)
    return forebay(home, "run", str(path), "--timeout", "120", *arguments)


def test_a_select_in_a_script_waits_for_the_views_before_it_and_run_without_a_file_starts_all_of_them(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(2), name("src"), tmp_path / "home"
    cluster.produce(topic, events(range(40)))
    head = SOURCE.format(source, cluster.bootstrap_servers, topic)
    done = run(
        home,
        f"{head} CREATE MATERIALIZED VIEW first AS SELECT id FROM {source}; SELECT count(*) AS n FROM first;",
        "--until-caught-up",
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\s*40\s*$", done.stdout, re.MULTILINE), done.stdout

    # A second script shows its own view alone.
    done = run(
        home, f"{head} CREATE MATERIALIZED VIEW second AS SELECT v FROM {source};", "--until-caught-up"
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^second +\w+ +40 records", done.stderr, re.MULTILINE), done.stderr
    assert not re.search(r"^first ", done.stderr, re.MULTILINE), done.stderr

    cluster.produce(topic, events(range(40, 50)))
    done = forebay(home, "run", "--until-caught-up", "--timeout", "120")
    assert done.returncode == 0, done.stderr
    for view in ("first", "second"):
        assert f"view {view} goes on where it stood" in done.stderr
        assert DeltaTable(str(home / "views" / view / "table")).to_pyarrow_table().num_rows == 50

    done = forebay(tmp_path / "empty", "run")
    assert done.returncode == 2
    assert "there is no view to run in this home" in done.stderr


@pytest.mark.parametrize(
    ("bad", "limit", "code"),
    [
        pytest.param(10, None, 1, id="all", marks=pytest.mark.long),
        pytest.param(9, None, 0, id="most", marks=pytest.mark.long),
        pytest.param(9, "80", 1, id="threshold"),
    ],
)
def test_a_run_whose_records_were_rejected_is_no_success(
    tmp_path: Path, cluster: Cluster, bad: int, limit: str | None, code: int
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, ["junk"] * bad + events(range(10 - bad)))
    script = SOURCE.format(source, cluster.bootstrap_servers, topic)
    script += f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source};"
    more = [] if limit is None else ["--max-rejected", limit]
    done = run(tmp_path / "home", script, "--until-caught-up", *more)
    assert done.returncode == code, done.stderr
    if code:
        assert f"FB2003: view 'v': {bad} of 10 records were rejected" in done.stderr


def test_a_view_created_by_sql_says_that_it_runs_only_while_something_runs_it(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source, home = cluster.make_topic(1), name("src"), tmp_path / "home"
    script = SOURCE.format(source, cluster.bootstrap_servers, topic)
    done = forebay(home, "sql", "-e", f"{script} CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
    assert done.returncode == 0, done.stderr
    assert "note: v runs only while something runs it" in done.stderr
    assert "forebay run" in done.stderr


def test_lag_is_not_known_before_the_first_batch_and_an_outage_is_shown(
    tmp_path: Path, cluster: Cluster
) -> None:
    """The live line of a view whose broker is away: no lag of 0, and why."""
    from forebay.cli.run import _line
    from forebay.runtime.status import QueryStatus

    status = QueryStatus("v", "running", -1, 0, 0, 0, 0.0, None, 0, "cannot reach Kafka")
    assert "lag –" in _line([status], None).plain
    assert "cannot reach Kafka" in _line([status], 80).plain
