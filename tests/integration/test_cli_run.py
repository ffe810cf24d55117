"""The command line on a real pipeline: data to stdout, words to stderr, exit codes that differ by cause."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commands
import pytest
from deltalake import DeltaTable
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from sessions import checkpoint_of, checkpointed, connect, events, name, rows
from support import Cluster
from terminals import terminal
from waiting import eventually

from forebay.cli.shell import _Names
from forebay.devstack.ports import free_ports
from forebay.errors import AlreadyRunningError

PIPELINE = """
CREATE SOURCE trades (id BIGINT NOT NULL, k STRING, v BIGINT)
FROM KAFKA (brokers = '${BROKERS}', topic = '${TOPIC}', group_id = '${GROUP:-cli}',
            max_records_per_batch = ${BATCH:-500000}) FORMAT JSON;
CREATE MATERIALIZED VIEW plain AS SELECT id FROM trades;
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS total FROM trades GROUP BY k EMIT CHANGES;
"""


def start(home: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments],
        env={**os.environ, "FOREBAY_HOME": str(home), "FOREBAY_MASTER": "local[2]", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def forebay(home: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = start(home, *arguments, **environment)
    out, words = process.communicate(timeout=150)
    return process.returncode, out, words


def quick(home: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """A command that starts no Spark."""
    done = commands.forebay(*arguments, environment={**os.environ, "FOREBAY_HOME": str(home), **environment})
    return done.returncode, done.stdout, done.stderr


def table(home: Path, view: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(str(home / "views" / view / "table")).to_pyarrow_table().to_pylist()
    )
    return found


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.sql"
    path.write_text(PIPELINE)
    return path


@dataclass(frozen=True)
class Run:
    """`forebay run --until-caught-up` in a new home, on a topic of 20 good records and a bad one."""

    home: Path
    topic: str
    group: str
    settings: dict[str, str]
    code: int
    out: str
    words: str
    first_line_s: float
    took_s: float


@pytest.fixture(scope="module")
def caught_up(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Run:
    """One for all who look at what it said and left: a Spark takes its time to start."""
    folder, topic, group = tmp_path_factory.mktemp("caught-up"), cluster.make_topic(2), name("group")
    script = folder / "pipeline.sql"
    script.write_text(PIPELINE)
    cluster.produce(topic, [*events(range(20)), "junk"])
    settings = {"BROKERS": cluster.bootstrap_servers, "TOPIC": topic, "GROUP": group}
    began = time.monotonic()
    process = start(folder / "home", "run", str(script), "--until-caught-up", "--timeout", "90", **settings)
    assert process.stderr is not None
    first = process.stderr.readline()
    first_line_s = time.monotonic() - began
    out, words = process.communicate(timeout=150)
    took_s = time.monotonic() - began
    return Run(
        folder / "home", topic, group, settings, process.returncode, out, first + words, first_line_s, took_s
    )


def test_run_until_caught_up_and_then_look_at_it_from_every_side(caught_up: Run, cluster: Cluster) -> None:
    home, topic, group, settings = caught_up.home, caught_up.topic, caught_up.group, caught_up.settings
    words = caught_up.words
    assert (caught_up.code, caught_up.out) == (0, ""), words
    assert "view plain created" in words
    assert re.search(r"plain +\w+ +21 records .*/s .*lag +0 .*batch +[\d,]+ ms.*1 rejected", words), words
    assert sorted(row["id"] for row in table(home, "plain")) == list(range(20))

    code, out, _ = quick(home, "show", "queries", "-o", "json")
    account = {row["view"]: row for row in json.loads(out)}
    assert code == 0
    assert {view: (row["state"], row["records"], row["rejected"]) for view, row in account.items()} == {
        "plain": ("stopped", 21, 1),
        "sums": ("stopped", 21, 1),
    }
    code, out, words = quick(home, "lag", "-o", "json", **settings)
    assert code == 0, words
    committed, ends = cluster.committed(group, topic), cluster.watermarks(topic)
    assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in json.loads(out)] == [
        (number, committed[number], ends[number][1], 0) for number in range(2)
    ]
    code, out, _ = quick(home, "tail", "sums", "--timeout", "0")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert {(row["k"], row["total"]) for row in lines} == {("a", 90), ("b", 100)}

    code, out, _ = quick(home, "sql", "-e", "SHOW VIEWS", "-o", "jsonl")
    assert code == 0
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["plain", "sums"]
    # What comes before a statement that is wrong is there all the same.
    query = "SELECT k, total FROM sums ORDER BY k; SHOW VIEWS; SELECT * FROM nosuch"
    code, out, words = forebay(home, "sql", "-e", query, "-o", "jsonl", **settings)
    assert code == 2, words
    assert "FB1101" in words
    found = [json.loads(line) for line in out.splitlines()]
    assert found[:2] == [{"k": "a", "total": 90}, {"k": "b", "total": 100}]
    assert [row["name"] for row in found[2:]] == ["plain", "sums"]


def test_a_cold_run_says_from_the_first_second_what_it_waits_for(caught_up: Run, cluster: Cluster) -> None:
    # Long before Spark is there, however busy the machine.
    assert caught_up.first_line_s < caught_up.took_s / 3
    said = caught_up.words.splitlines()
    assert [line for line in said if line.endswith("…") or "catching up" in line] == [
        "loading …",
        f"checking source trades, reaching brokers at {cluster.bootstrap_servers} …",
        "starting Spark, then view plain …",
        "starting view sums …",
        "catching up: ends when all that the topics hold now is in the views",
    ]


@dataclass(frozen=True)
class Live:
    """`forebay run` with its metrics and its dashboard, in the middle of 30,000 records."""

    process: subprocess.Popen[str]
    home: Path
    topic: str
    settings: dict[str, str]
    port: int
    said: str
    url: str


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Live]:
    """Whoever comes last may end it."""
    folder, topic = tmp_path_factory.mktemp("live"), cluster.make_topic(3)
    script = folder / "pipeline.sql"
    script.write_text(PIPELINE)
    cluster.produce(topic, events(range(30_000)))
    settings = {
        "BROKERS": cluster.bootstrap_servers, "TOPIC": topic, "GROUP": name("group"), "BATCH": "60",
    }  # fmt: skip
    (port,) = free_ports(1)
    process = start(
        folder / "home", "run", str(script), "--metrics-port", str(port), "--ui", "--ui-port", "0", **settings
    )
    assert process.stderr is not None
    try:
        said = ""
        while "dashboard at" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield Live(process, folder / "home", topic, settings, port, said, said.split()[-1])
    finally:
        process.kill()
        process.communicate()


def test_run_serves_the_dashboard_of_its_pipeline(live: Live) -> None:
    asked = lambda path: urllib.request.urlopen(live.url + path, timeout=20).read().decode()  # noqa: E731
    assert json.loads(asked("/readyz"))["ready"]
    eventually(
        lambda: [each["records"] > 0 for each in json.loads(asked("/api/views"))] == [True, True],
        "the views have records",
        120,
    )
    assert json.loads(asked("/api/overview"))["live"]
    assert "Forebay" in asked("/")
    assert "forebay_" in asked("/metrics")


def test_sigterm_finishes_the_batch_commits_and_ends_with_0_while_others_may_read(
    live: Live, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, home, topic, port = live.process, live.home, live.topic, live.port
    group = live.settings["GROUP"]
    for key, value in live.settings.items():  # a definition keeps ${NAME}: whoever uses it must know it
        monkeypatch.setenv(key, value)
    eventually(lambda: (home / "views" / "sums" / "table").exists(), "it runs", timeout=60)
    with connect(home) as reader:  # another process: this one
        eventually(lambda: sum(query.records for query in reader.queries()) > 200, "batches are done", 60)
        assert {query.state for query in reader.queries()} == {"running"}
        assert rows(reader, "SELECT count(*) > 0 FROM plain") == [(True,)]
        assert next(iter(reader.subscribe("plain", timeout=10))).num_rows > 0
        for statement in (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS plain AS SELECT 1 FROM x",
            "DROP MATERIALIZED VIEW plain",
            "DROP SOURCE trades CASCADE",
        ):
            with pytest.raises(AlreadyRunningError, match=f"process {process.pid}"):
                reader.execute(statement)
        assert process.poll() is None
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert re.search(r'^forebay_query_records_total{view="sums"} [1-9]', metrics, re.MULTILINE), metrics
    assert 'forebay_query_state{state="running",view="plain"} 1.0' in metrics
    for number in range(3):
        labels = f'consumergroup="{group}",partition="{number}",topic="{topic}"'
        assert f"kafka_consumergroup_lag{{{labels}}} " in metrics
    process.send_signal(signal.SIGTERM)
    out, words = process.communicate(timeout=60)
    words = live.said + words
    assert process.returncode == 0, words
    assert out == ""
    assert f"metrics at http://localhost:{port}/metrics" in words

    for view in ("plain", "sums"):
        logs = checkpoint_of(home, view)
        planned, done = (
            {entry.name for entry in (logs / log).iterdir() if entry.name.isdigit()}
            for log in ("offsets", "commits")
        )
        assert planned == done  # no batch is half done
    reached = checkpointed(home, "plain", topic)
    slower = {n: min(offset, checkpointed(home, "sums", topic)[n]) for n, offset in reached.items()}
    assert cluster.committed(group, topic) == slower
    # Record n went to partition n % 3: what the checkpoint says was read is what the table holds.
    read = [n for n in range(30_000) if n // 3 < reached[n % 3]]
    assert sorted(row["id"] for row in table(home, "plain")) == read
    assert 0 < len(read) < 30_000

    code, out, _ = quick(home, "show", "queries", "-o", "json")
    assert code == 0
    assert next((row["view"], row["records"], row["state"]) for row in json.loads(out)) == (
        "plain", len(read), "stopped",
    )  # fmt: skip


def test_a_timeout_ends_with_4_and_what_was_done_stays_done(
    tmp_path: Path, pipeline: Path, cluster: Cluster
) -> None:
    topic, home = cluster.make_topic(1), tmp_path / "home"
    cluster.produce(topic, events(range(500)))
    settings = {"BROKERS": cluster.bootstrap_servers, "TOPIC": topic, "GROUP": name("g"), "BATCH": "2"}
    code, out, words = forebay(home, "run", str(pipeline), "--until-caught-up", "--timeout", "2", **settings)
    assert (code, out) == (4, ""), words
    assert "FB4002" in words
    assert "Traceback" not in words
    assert len(table(home, "plain")) == checkpointed(home, "plain", topic).get(0, 0)


def test_a_pipeline_that_fails_ends_with_1_and_says_why(tmp_path: Path) -> None:
    script = tmp_path / "fails.sql"
    script.write_text(
        "CREATE SOURCE gen (n BIGINT) FROM DATAGEN (number_of_rows = 10, 'fields.n.kind' = 'sequence');\n"
        "CREATE SOURCE endless (n BIGINT) FROM DATAGEN (rows_per_second = 1);\n"
        "CREATE MATERIALIZED VIEW fine AS SELECT n FROM endless;\n"
        "CREATE MATERIALIZED VIEW bad AS SELECT 1 DIV (n - 5) AS x FROM gen;\n"
    )
    code, out, words = forebay(tmp_path / "home", "run", str(script), "--timeout", "60")
    assert (code, out) == (1, ""), words
    assert "FB4001: view 'bad' failed" in words
    assert "division by zero" in words
    assert "Traceback" not in words


def test_wrong_sql_and_wrong_use_end_with_2(tmp_path: Path, pipeline: Path) -> None:
    script = tmp_path / "wrong.sql"
    script.write_text("SHOW SOURCES;\nCREATE SORCE t (id BIGINT);\n")
    code, out, words = quick(tmp_path / "home", "run", str(script))
    assert (code, out) == (2, "")
    assert "2 | CREATE SORCE t" in words
    assert "  | " + " " * 7 + "^^^^^" in words
    assert "did you mean SOURCE?" in words

    code, _, words = quick(tmp_path / "home", "run", str(tmp_path / "nosuch.sql"))
    assert code == 2
    assert "nosuch.sql" in words.replace("\n", "")
    code, _, words = quick(tmp_path / "home", "run", str(pipeline))
    assert code == 2
    assert "BROKERS" in words
    assert quick(tmp_path / "home", "tail", "nosuch", "--timeout", "0")[0] == 2
    assert quick(tmp_path / "home", "show", "nonsense")[0] == 2
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, words = quick(tmp_path / "home", "run", str(script), "--metrics-port", port)
    assert code == 2
    assert f"port {port}" in words
    assert "Traceback" not in words


def test_a_broker_that_cannot_be_reached_ends_with_3_and_its_address(tmp_path: Path) -> None:
    script = tmp_path / "away.sql"
    script.write_text(
        "CREATE SOURCE t (id BIGINT) FROM KAFKA (brokers = '127.0.0.1:9', topic = 't', connect_timeout_ms = 600) "
        "FORMAT JSON"
    )
    code, out, words = quick(tmp_path / "home", "run", str(script))
    assert (code, out) == (3, "")
    assert "127.0.0.1:9" in words
    assert "Traceback" not in words
    assert json.loads(quick(tmp_path / "home", "show", "sources", "-o", "json")[1]) == []


def test_the_shell_reads_statements_shows_errors_and_goes_on(tmp_path: Path) -> None:
    with terminal(tmp_path / "home", "sql", NO_COLOR="1") as shell:
        shell.expect("Type help;")
        shell.type("help;")
        shell.expect("A statement ends with a semicolon")
        shell.type("CREATE SOURCE gen (n BIGINT)\rFROM DATAGEN ();")
        shell.expect("source gen created")
        shell.type("SHOW SORCES;")
        shell.expect("did you mean SHOW SOURCES?")
        shell.type("SHOW SOURCES;")
        shell.expect("datagen")
        shell.type("exit")
        assert shell.process.wait(30) == 0
    assert "SHOW SOURCES;" in (tmp_path / "home" / "history").read_text()


def test_the_shell_completes_keywords_options_and_names(tmp_path: Path) -> None:
    with connect(tmp_path) as session:
        session.execute("CREATE SOURCE generated (n BIGINT) FROM DATAGEN ()")
        completer = _Names(session)

        def complete(text: str) -> set[str]:
            return {c.text for c in completer.get_completions(Document(text), CompleteEvent())}

        assert complete("SHOW S") == {"SHOW SOURCES", "SHOW SINKS"}
        assert "generated" in complete("SELECT * FROM gen")
        assert "'bootstrap.servers' = " in complete("CREATE SOURCE x FROM KAFKA ('boot")
        assert complete("") == set()
