"""Parts of the dashboard by themselves: the audit log, the history, many sources, and where its packages are missing."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.actors import acting_as, current
from forebay.catalog import BatchRecord, Catalog, Definition
from forebay.catalog.audit import AuditLog
from forebay.connectors.contract import HealthStatus, PartitionLag
from forebay.errors import OptionValueError
from forebay.runtime.known import SourceFacts
from forebay.runtime.source_flow import SourceFlow
from forebay.web import history
from forebay.web.backend import Backend
from forebay.web.history import History, SourceSample, thinned, with_percentiles
from forebay.web.model import HistoryPoint
from forebay.web.sampler import furthest_behind
from forebay.web.snapshot import Rates, SourceNow


def test_a_line_of_the_audit_log_cannot_be_changed_or_removed(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.add("ann", "pause", "orders", "because", "done", "paused")
    with sqlite3.connect(tmp_path / "audit.db") as db:
        for statement in (
            "UPDATE audit SET actor = 'eve'",
            "DELETE FROM audit",
            "INSERT OR REPLACE INTO audit SELECT * FROM audit",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
                db.execute(statement)
    db.close()
    assert [(line.actor, line.action, line.target) for line in log.entries()] == [("ann", "pause", "orders")]
    log.close()
    assert (tmp_path / "audit.db").stat().st_mode & 0o077 == 0


def old_line(home: Path, days: float) -> None:
    """A line as somebody wrote it so long ago."""
    with closing(sqlite3.connect(home / "audit.db", isolation_level=None)) as db:
        at = int((time.time() - days * 86_400) * 1000)
        db.execute(
            "INSERT INTO audit (at_ms, actor, action, target, detail, outcome, message) VALUES (?, 'ann', 'pause', 'orders', '', 'done', '')",
            (at,),
        )


def test_lines_past_the_retention_go_and_a_line_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(AuditLog(tmp_path)) as log:
        log.add("ann", "pause", "orders")
    for days in (500, 401, 399, 50):
        old_line(tmp_path, days)
    with closing(AuditLog(tmp_path)) as log:
        log.add("ben", "resume", "orders")
        assert [line.action for line in log.entries()] == ["resume", "remove old lines", *["pause"] * 3]
        assert log.entries()[1].detail == "2 lines older than 400 days, of the numbers 2 to 3"
        log.add("ben", "pause", "orders")
        assert len(log.entries()) == 6
    monkeypatch.setenv("FOREBAY_AUDIT_RETENTION_DAYS", "40")
    with closing(AuditLog(tmp_path)) as log:
        log.add("ben", "resume", "orders")
        assert log.entries()[1].detail == "2 lines older than 40 days, of the numbers 4 to 5"


def test_the_audit_log_keeps_a_month_whatever_is_set_and_all_of_it_where_that_makes_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_AUDIT_RETENTION_DAYS", "1")
    with closing(AuditLog(tmp_path)) as log:
        log.add("ann", "pause", "orders")
        old_line(tmp_path, 1_000)
    with closing(AuditLog(tmp_path)) as log:
        log.add("ann", "pause", "orders")
        assert len(log.entries()) == 3


def test_a_change_that_fails_is_written_down_with_why(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    with pytest.raises(OptionValueError), log.noted("ann", "alter", "orders"):
        raise OptionValueError("no such policy")
    with log.noted("ann", "alter", "orders", "x" * 10_000) as note:
        note.message = "altered"
    newest, first = log.entries()
    assert (first.outcome, first.message) == ("failed", "no such policy")
    assert (newest.outcome, newest.message, len(newest.detail)) == ("done", "altered", 2_000)
    log.close()


def test_who_acts_is_the_user_unless_somebody_acts_for_another() -> None:
    assert current().startswith("user")
    with acting_as("login: ann"):
        assert current() == "login: ann"
    assert current().startswith("user")


def test_history_is_bounded_in_time_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_ROWS", 100)
    kept = History(tmp_path)
    hour = 3_600_000
    kept.add([SourceSample("s", 0, 1.0, 1.0, 1, 1.0, 1, {"a": 1})])
    kept.add([SourceSample("s", 2 * hour, 2.0, 1.0, 1, 1.0, 1, {"a": 2})])
    assert [point.errors for point in kept.points("s", 0)] == [{"a": 2}]
    for at in range(300):
        kept.add([SourceSample("s", 2 * hour + at, float(at), None, None, None, None)])
    assert 80 <= len(kept.points("s", 0)) <= 100
    assert kept.points("s", 0)[-1].records_per_s == 299.0
    kept.close()


def test_lag_by_partition_is_kept_of_the_few_that_are_furthest_behind(tmp_path: Path) -> None:
    rows = tuple(PartitionLag("t", number, 0, number, number) for number in range(1_000))
    source = SourceNow(
        Definition("s", "source", "", 0), SourceFacts("kafka", {}, (), None), "skip", (), None,
        SourceFlow("s", None, ()), HealthStatus(True, "", partitions=rows), Rates(), None,
    )  # fmt: skip
    found = furthest_behind(source)
    assert found == {f"t-{number}": number for number in range(999, 999 - history.PARTITIONS, -1)}
    kept = History(tmp_path)
    kept.add([SourceSample("s", 1, None, None, 1, None, None, partitions=found)])
    (point,) = kept.points("s", 0)
    assert point.partitions == found
    kept.close()


def test_percentiles_are_of_the_batches_of_a_minute() -> None:
    fast = [HistoryPoint(at * 1000, None, None, None, None, 10) for at in range(60)]
    slow = HistoryPoint(60_000, None, None, None, None, 900)
    later = HistoryPoint(200_000, None, None, None, None, 20)
    idle = HistoryPoint(201_000, None, None, None, None, None)
    found = with_percentiles([*fast, slow, later, idle])
    assert [(each.batch_ms_p50, each.batch_ms_p99) for each in found[-4:]] == [
        (10, 10), (10, 900), (20, 20), (None, None),
    ]  # fmt: skip


def test_one_process_writes_the_history_and_a_damaged_one_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"this is no database" * 1000)
    first, second = History(tmp_path), History(tmp_path)
    sample = SourceSample("s", 1, 1.0, None, None, None, None)
    assert first.add([sample])
    assert not second.add([sample])
    assert len(second.points("s", 0)) == 1
    first.close()
    assert second.add([sample])
    second.close()


@given(st.lists(st.integers(0, 5), max_size=300), st.integers(1, 50))
def test_joined_points_lose_no_error_and_no_peak(errors: list[int], most: int) -> None:
    points = [
        HistoryPoint(
            at,
            float(count),
            None,
            count,
            float(count),
            count,
            {"k": count} if count else {},
            partitions={"t-0": count},
        )
        for at, count in enumerate(errors)
    ]
    found = thinned(points, most)
    assert len(found) <= most
    assert sum(point.errors.get("k", 0) for point in found) == sum(errors)
    assert max((point.lag or 0 for point in found), default=0) == max(errors, default=0)
    assert max((point.partitions["t-0"] for point in found), default=0) == max(errors, default=0)
    assert [point.at_ms for point in found] == sorted(point.at_ms for point in found)


def many(home: Path, count: int) -> None:
    """Sources, each with a view that has counted something."""
    catalog = Catalog(home / "catalog.db")
    for number in range(count):
        name = f"s{number}"
        facts = SourceFacts("datagen", {}, ("id",), None)
        text = f"CREATE SOURCE {name}"
        catalog.put(Definition(name, "source", text, 1, {"facts": facts.to_json(text)}))
        detail = {"sources": [name], "emit": "append", "keys": []}
        catalog.put(Definition(f"v{number}", "view", f"CREATE MATERIALIZED VIEW v{number}", 1, detail))
        catalog.record_batch(BatchRecord(f"v{number}", name, 0, 10, {"Malformed": 1}, "x", (), 0, {}, 5))
    catalog.close()


def test_two_hundred_sources_are_listed_quickly(tmp_path: Path) -> None:
    many(tmp_path, 200)
    backend = Backend(tmp_path)
    try:
        backend.overview()
        began = time.perf_counter()
        overview, sources, views = backend.overview(), backend.sources(), backend.views()
        took = time.perf_counter() - began
        assert (len(sources), len(views)) == (200, 200)
        assert len(overview.edges) == 400
        assert len(overview.problems) <= 100
        assert took < 0.3
    finally:
        backend.close()


def test_without_its_packages_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['nicegui'] = None\nfrom forebay.cli.main import main\nmain()"
    for command in (["ui"], ["run", "--ui"], ["pool", "run", "a:b", "--ui"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path, timeout=60
        )
        assert (done.returncode, "FB8006" in done.stderr) == (2, True), done.stderr
        assert "pip install 'forebay[ui]'" in done.stderr


def test_forebay_ui_serves_a_home_with_a_token_where_others_can_reach_it(tmp_path: Path) -> None:
    import urllib.error
    import urllib.request

    command = [
        sys.executable,
        "-m",
        "forebay",
        "ui",
        "--home",
        str(tmp_path),
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--no-open",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = process.stderr.readline().split()[-1]
            token = process.stderr.readline().split()[-1]
            with urllib.request.urlopen(f"{url}/healthz", timeout=20) as answer:
                assert json.load(answer) == {"status": "ok"}
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{url}/api/sources", timeout=20)
            request = urllib.request.Request(
                f"{url}/api/sources", headers={"Authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert json.load(answer) == []
        finally:
            process.terminate()
            process.wait(20)
    assert process.returncode == 0
    assert all(
        token not in path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()
    )
