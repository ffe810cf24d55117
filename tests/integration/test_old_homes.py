"""A home of the version before goes on: its views, its letters and its counts, also where that version was killed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import forebay
from sessions import BASE_MS, checkpointed, connect, name, notes, rows, utc
from support import Cluster
from waiting import eventually

from forebay.runtime import checkpoints
from forebay.runtime.session import Session

BEFORE = "4d233469cd64f71ef66349d8f5f1d800e925b224"
BAD_EVERY = 250
LATE_S = 600
VIEWS = ("evens", "everything", "sums", "minutes")
SCRIPT = """
CREATE SOURCE {source} (id BIGINT NOT NULL, k STRING, v BIGINT, ts TIMESTAMP,
                        WATERMARK FOR ts AS ts - INTERVAL '{late}' SECOND)
FROM KAFKA (brokers = '{brokers}', topic = '{topic}', group_id = '{source}', max_records_per_batch = 400)
FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{topic}-dlq');
CREATE MATERIALIZED VIEW evens AS SELECT id, v FROM {source} WHERE v > 10 AND k = 'a';
CREATE MATERIALIZED VIEW everything AS SELECT * FROM {source};
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM {source} GROUP BY k EMIT CHANGES;
CREATE MATERIALIZED VIEW minutes AS
    SELECT window_start, count(*) AS n, max(id) AS newest FROM {source} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
    EMIT ON WINDOW CLOSE;
"""
RUN = """
import sys
import forebay
assert forebay.__file__.startswith(sys.argv.pop(1)), forebay.__file__
from forebay.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def version_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the version before, from the history of this repository."""
    git, here = shutil.which("git"), Path(__file__).parent
    if git is None:
        pytest.skip("the version before cannot be had: there is no git here")
    found = subprocess.run(
        [git, "archive", "--format=tar", BEFORE, "src"], cwd=here.parent.parent, capture_output=True
    )
    if found.returncode:
        pytest.skip(
            f"the version before, commit {BEFORE[:7]}, is not in this history: {found.stderr.decode().strip()}"
        )
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


@contextmanager
def run_before(version: Path, script: Path, home: Path) -> Iterator[subprocess.Popen[str]]:
    """`forebay run` of the version before, in a process group of its own that has ended afterwards."""
    command = ("run", str(script), "--home", str(home), "--master", "local[2]")
    # The native reader belongs to this version, and is no part of a home.
    environment = {**os.environ, "PYTHONPATH": str(version), "FOREBAY_NATIVE": "0"}
    log = home.with_suffix(".log")
    with log.open("a") as words:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(version), *command],
            stdout=words, stderr=words, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def bad(number: int) -> bool:
    return number % BAD_EVERY == 7


def record(number: int) -> str:
    row = {"id": number, "k": "ab"[number % 2], "v": number, "ts": BASE_MS + number * 1000}
    return '{"id": ' if bad(number) else json.dumps(row)


def in_a_batch(home: Path, view: str) -> bool:
    checkpoint = home / "views" / view / "checkpoint"
    return (checkpoint / "offsets" / str(checkpoints.last_batch(checkpoint) + 1)).exists()


def assert_exact(db: Session, sent: int) -> None:
    """Every good record of [0, sent) is in every view once."""
    good = [number for number in range(sent) if not bad(number)]
    evens = [number for number in good if number > 10 and number % 2 == 0]
    assert rows(db, "SELECT count(*), count(DISTINCT id), sum(v) FROM evens") == [
        (len(evens), len(evens), sum(evens))
    ]
    assert rows(db, "SELECT count(*), count(DISTINCT id), sum(v) FROM everything") == [
        (len(good), len(good), sum(good))
    ]
    by_key = {key: [number for number in good if "ab"[number % 2] == key] for key in "ab"}
    assert rows(db, "SELECT k, n, total FROM sums ORDER BY k") == [
        (key, len(of), sum(of)) for key, of in by_key.items()
    ]
    closed = range((good[-1] - LATE_S) // 60)  # the watermark has passed their ends
    windows = [[number for number in good if number // 60 == minute] for minute in closed]

    def found() -> list[tuple[int, int, int]]:
        answer = utc(rows(db, "SELECT window_start, n, newest FROM minutes ORDER BY window_start"))
        return [(int(at.timestamp() * 1000 - BASE_MS) // 60_000, n, newest) for at, n, newest in answer]

    # The batch that closes the last windows comes after those that have read all.
    eventually(lambda: len(found()) >= len(closed), f"{len(closed)} windows are closed")
    assert found() == [(minute, len(of), of[-1]) for minute, of in zip(closed, windows, strict=True)]


@pytest.mark.timeout(240)
def test_a_home_of_the_version_before_goes_on_with_nothing_lost_and_nothing_twice(
    version_before: Path, cluster: Cluster, tmp_path: Path
) -> None:
    home, topic, source = tmp_path / "home", cluster.make_topic(2), name("old")
    script = tmp_path / "pipeline.sql"
    script.write_text(
        SCRIPT.format(source=source, topic=topic, brokers=cluster.bootstrap_servers, late=LATE_S)
    )
    cluster.produce(topic, map(record, range(600)))
    with run_before(version_before, script, home) as process:

        def alive(condition: bool) -> bool:
            assert process.poll() is None, home.with_suffix(".log").read_text()
            return condition

        caught_up = {0: 300, 1: 300}
        eventually(
            lambda: alive(all(checkpointed(home, view, topic) == caught_up for view in VIEWS)),
            "every view has what there is",
            timeout=120,
        )
        cluster.produce(topic, map(record, range(600, 2_400)))
        eventually(
            lambda: alive(
                all(checkpointed(home, view, topic) != caught_up for view in VIEWS)
                and any(in_a_batch(home, view) for view in VIEWS)
            ),
            "every view has done a batch more, and one is in the middle of another",
            timeout=120,
        )
        os.killpg(process.pid, signal.SIGKILL)

    cluster.produce(topic, map(record, range(2_400, 2_600)))
    with connect(home) as db:
        done = [str(result.done) for result in db.execute(script.read_text())]
        assert done == [
            f"source {source} exists already",
            *(f"view {view} goes on where it stood" for view in VIEWS),
        ]
        db.wait(until_caught_up=True, timeout=120)
        assert_exact(db, 2_600)
        refused = [number for number in range(2_600) if bad(number)]
        counts = {query.view: (query.records, query.rejected) for query in db.queries()}
        assert counts == dict.fromkeys(VIEWS, (2_600, len(refused)))
        ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
        eventually(lambda: cluster.committed(source, topic) == ends, "the group is where the views are")
        assert f"rejected.MalformedPayload: {len(refused)}" in notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
        environment = {**os.environ, "FOREBAY_HOME": str(home)}
        listed = forebay("dlq", "ls", "--limit", "100", "-o", "json", environment=environment)
        assert listed.returncode == 0, listed.stderr
        assert len(json.loads(listed.stdout)) == len(refused)
