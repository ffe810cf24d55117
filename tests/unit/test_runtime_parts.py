"""The parts of the runtime that need neither a broker nor Spark."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from waiting import eventually

from forebay.backoff import MAX_MS, MIN_MS, Backoff, wait_ms, with_backoff
from forebay.catalog import QueryState
from forebay.cli.output import OutputFormat, plain, show
from forebay.connectors.contract import Offsets, SourceCheckpoint, SourceConfig
from forebay.connectors.datagen import DatagenSource
from forebay.errors import (
    AlreadyRunningError,
    AuthError,
    CommitError,
    ForebayError,
    MissingOptionError,
    OptionValueError,
    Position,
    QueryFailedError,
    StatementError,
    UnreachableError,
    UnsupportedSqlError,
)
from forebay.runtime import checkpoints
from forebay.runtime.definitions import view_statement
from forebay.runtime.group_commits import GroupCommitter
from forebay.runtime.lock import ViewLock
from forebay.runtime.placing import placed
from forebay.runtime.query import RunningQuery
from forebay.runtime.results import Result
from forebay.runtime.view_positions import earlier
from forebay.sql import parse_one, plan
from forebay.views.paths import ViewPaths


def _checkpoint(path: Path, offsets: dict[int, Offsets], committed: list[int]) -> None:
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"71b0c6ac-ce09-441b-91c3-268024e14eef"}')
    for batch, position in offsets.items():
        (path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(position)}')
        (path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in committed:
        (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_checkpoint_is_read_up_to_the_last_committed_batch_not_the_last_planned(tmp_path: Path) -> None:
    _checkpoint(tmp_path, {9: {"source": "t", "row": 9}, 10: {"source": "t", "row": 10}}, [8, 9])
    found = checkpoints.committed(tmp_path)
    assert found is not None
    assert (found.batch, found.offsets) == (9, ({"source": "t", "row": 9},))
    assert found.query_id == checkpoints.query_id(tmp_path) == "71b0c6ac-ce09-441b-91c3-268024e14eef"


def test_batches_are_numbers_so_ten_comes_after_nine(tmp_path: Path) -> None:
    _checkpoint(tmp_path, {10: {"source": "t", "row": 10}}, [2, 9, 10])
    found = checkpoints.committed(tmp_path)
    assert found is not None
    assert found.batch == 10


def test_no_checkpoint_and_no_finished_batch_are_both_none(tmp_path: Path) -> None:
    assert checkpoints.committed(tmp_path) is None
    _checkpoint(tmp_path, {0: {"source": "t", "row": 1}}, [])
    assert checkpoints.committed(tmp_path) is None


def test_a_view_is_run_by_one_process_at_a_time_and_the_lock_ends_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "v"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from forebay.runtime.lock import ViewLock\n"
            "from forebay.views.paths import ViewPaths\n"
            "lock = ViewLock('v', ViewPaths(Path(sys.argv[1]))); lock.acquire(); print('held', flush=True); sys.stdin.read()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    lock = ViewLock("v", ViewPaths(path))
    with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}"):
        lock.acquire()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    holder.stdin.close()
    lock.acquire()
    lock.release()


def test_a_lock_may_be_released_by_two_threads_at_once(tmp_path: Path) -> None:
    """A view that fails lets go of it by itself, perhaps while somebody drops the view."""
    lock = ViewLock("v", ViewPaths(tmp_path))
    with ThreadPoolExecutor(2) as threads:
        for _ in range(300):
            lock.acquire()
            start = threading.Barrier(2)
            both = [threads.submit(lambda: (start.wait(), lock.release())) for _ in range(2)]  # noqa: B023
            for each in both:
                each.result(10)


def test_what_the_catalog_holds_is_parsed_once_for_each_text() -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM s GROUP BY a"
    statement = view_statement(text)
    assert view_statement("".join(text)) is statement
    assert view_statement(text.replace("AS n", "AS m")) != statement
    # That is safe only as long as nobody changes what was parsed.
    before = repr(statement.query)
    assert plan(statement.query, statement.emit) == plan(statement.query, statement.emit)
    assert repr(statement.query) == before


PLACED = (
    "CREATE SOURCE s (a INT) FROM KAFKA (topic = 't') ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'd')"
)


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (OptionValueError("wrong", option="topic"), "topic = 't'"),
        (OptionValueError("wrong", option="dead_letter_topic"), "dead_letter_topic"),
        (OptionValueError("wrong", option="elsewhere"), "CREATE"),
        (MissingOptionError("none", option="topic"), "CREATE"),
        (MissingOptionError("none", option="dead_letter_topic"), "ON ERROR"),
        (UnsupportedSqlError("no"), "CREATE"),
        (UnsupportedSqlError("no", position=Position(1, 8, 6), statement="…"), "SOURCE"),
    ],
)
def test_an_error_is_placed_at_the_option_it_names_or_else_at_the_statement(
    error: StatementError, place: str
) -> None:
    with pytest.raises(StatementError) as raised, placed(parse_one(PLACED)):
        raise error
    assert raised.value is error
    assert error.position is not None
    assert error.position.column == PLACED.index(place) + 1


def test_backoff_starts_at_100_ms_doubles_and_ends_at_30_s() -> None:
    backoff = Backoff()
    waits = [backoff.failed() for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == MAX_MS / 1000 == 30.0
    backoff.over()
    assert backoff.failed() == MIN_MS / 1000


def test_only_an_unreachable_system_is_waited_for() -> None:
    heard: list[float] = []
    tries = iter([UnreachableError("away"), UnreachableError("away"), None])

    def attempt() -> str:
        error = next(tries)
        if error:
            raise error
        return "there"

    assert with_backoff(attempt, timeout_s=None, notify=lambda _, wait: heard.append(wait)) == "there"
    assert heard == [0.1, 0.2]

    def refused() -> str:
        raise AuthError("no")

    with pytest.raises(AuthError):
        with_backoff(refused, timeout_s=None)

    def never() -> str:
        raise UnreachableError("away for good")

    with pytest.raises(UnreachableError):
        with_backoff(never, timeout_s=0.25)


def test_what_is_waited_for_and_how_often_can_be_said() -> None:
    tried: list[int] = []

    def missing() -> str:
        tried.append(1)
        raise AuthError("no")

    with pytest.raises(AuthError):
        with_backoff(missing, on=AuthError, tries=2, timeout_s=None)
    assert len(tried) == 2


def test_a_wait_stays_within_its_limit_after_any_number_of_failures() -> None:
    assert [wait_ms(failures, 3, 10) for failures in (1, 2, 3, 1_000_000)] == [3, 6, 10, 10]
    assert wait_ms(1_000_000, 0, 10) == 0


class _Flaky(DatagenSource):
    """A real connector whose commits fail as often as it is told."""

    failures = 0
    error: Exception = CommitError("the coordinator moved")

    def commit_offsets(self, checkpoint: SourceCheckpoint) -> None:
        if self.failures:
            self.failures -= 1
            raise self.error
        super().commit_offsets(checkpoint)


def _flaky(failures: int, error: Exception | None = None) -> _Flaky:
    connector = _Flaky(SourceConfig("t", "datagen", {}, pa.schema([])))
    connector.failures = failures
    connector.error = error or connector.error
    return connector


def test_a_commit_that_fails_is_tried_again_until_it_works_and_the_trouble_is_told() -> None:
    told: list[ForebayError | None] = []
    committer = GroupCommitter(lambda source, error: told.append(error))
    connector = _flaky(2)
    committer.submit("t", connector, SourceCheckpoint({"row": 5, "epoch_ms": 0}, 3))
    assert committer.flush(10)
    committer.close()
    found = connector.current_offsets()
    assert found is not None
    assert found.offsets["row"] == 5
    assert [error is None for error in told] == [False, False, True]


def test_a_newer_position_replaces_one_that_waits_and_nothing_older_is_committed_after_it() -> None:
    failed = threading.Event()
    committer = GroupCommitter(lambda source, error: failed.set() if error else None)
    connector = _flaky(1)
    committer.submit("t", connector, SourceCheckpoint({"row": 1, "epoch_ms": 0}, 1))
    assert failed.wait(5)
    committer.submit("t", connector, SourceCheckpoint({"row": 2, "epoch_ms": 0}, 2))
    assert committer.flush(10)
    committer.close()
    found = connector.current_offsets()
    assert found is not None
    assert found.epoch == 2


def test_a_result_is_a_table_in_every_shape() -> None:
    result = Result.of(("name", "n"), [("a", 1), (None, 2)])
    assert result.arrow() == pa.table({"name": ["a", None], "n": [1, 2]})
    assert result.fetchall() == [("a", 1), (None, 2)]
    assert result.rows() == [{"name": "a", "n": 1}, {"name": None, "n": 2}]
    assert result.pl().shape == result.df().shape == (2, 2)
    assert "<td>NULL</td>" in result._repr_html_()
    screen = io.StringIO()
    result.show(limit=1, console=Console(file=screen, width=80))
    assert "(2 rows, 1 not shown)" in screen.getvalue()
    with pytest.raises(TypeError):
        result.spark()


def _shown(result: Result, width: int, *, terminal: bool) -> list[str]:
    screen = io.StringIO()
    result.show(console=Console(file=screen, width=width, force_terminal=terminal, no_color=True))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    return [line.rstrip() for line in plain.splitlines()]


def test_a_table_that_does_not_fit_is_shown_a_row_below_another_and_a_pipe_gets_whole_lines() -> None:
    names = [f"column_{number}" for number in range(12)]
    result = Result.of(names, [[f"value {number}" for number in range(12)], [None] * 12])
    lines = _shown(result, 80, terminal=True)
    assert lines[:2] == ["── row 1 ──", " column_0 value 0"]
    assert "column_11 NULL" in lines
    assert max(len(line) for line in lines) <= 80
    piped = _shown(result, 80, terminal=False)
    assert len(piped) == 5, "names, a rule, two rows and their count"
    assert "value 0" in piped[2]
    assert "value 11" in piped[2]
    wide = _shown(result, 200, terminal=True)
    assert len(wide) == 5


def test_html_of_a_result_is_escaped() -> None:
    assert "<script>" not in Result.of(("x",), [("<script>",)])._repr_html_()


def test_json_output_is_json_whatever_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    from datetime import UTC, datetime

    when = datetime(2026, 1, 28, 10, 30, tzinfo=UTC)
    show(Result.of(("t", "b"), [(when, b"\x00\x01")]), OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == [{"t": "2026-01-28T10:30:00+00:00", "b": "AAE="}]
    show(Result.of(("n",), [(1,), (2,)]), OutputFormat.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"n": 1}, {"n": 2}]
    assert plain(object) == str(object)


def test_what_a_statement_did_goes_to_stderr_so_that_stdout_is_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Result(done="source t created"), OutputFormat.JSON)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "source t created" in seen.err


def _query(home: Path, build: Callable[[], Any], states: list[QueryState]) -> RunningQuery:
    """A view's query without its Spark."""
    query = RunningQuery(
        "v",
        ViewPaths(home / "v"),
        {},
        build,
        output_mode="append",
        merge_keys=None,
        on_state=lambda name, state, message: states.append(state),
        evolve=lambda source, schema: None,
        session_lock=threading.RLock(),
    )
    query.lock.acquire()
    query.run, query.state = "first", QueryState.RUNNING
    return query


def test_a_query_does_not_hear_late_news_of_a_run_before_this_one(tmp_path: Path) -> None:
    query = _query(tmp_path, lambda: None, [])
    query.run = "second"
    query.on_terminated("first", "of the first")
    assert (query.state, query.run) == (QueryState.RUNNING, "second")
    query.on_terminated("second", "of the second")
    assert query.state is QueryState.FAILED
    assert "of the second" in str(query.error)


def test_a_query_that_cannot_be_started_again_is_failed_with_its_reason_and_lets_go_of_its_lock(
    tmp_path: Path,
) -> None:
    def build() -> None:
        raise TypeError("nobody foresaw this")

    states: list[QueryState] = []
    query = _query(tmp_path, build, states)
    query.on_terminated("first", "Python worker exited unexpectedly (crashed)")
    with query.changed:
        assert query.changed.wait_for(lambda: query.state is QueryState.FAILED, 30)
    assert "nobody foresaw this" in str(query.error)
    with pytest.raises(QueryFailedError, match="nobody foresaw this"):
        query.raise_if_failed()
    assert states == [QueryState.RETRYING, QueryState.FAILED]
    other = ViewLock("v", ViewPaths(tmp_path / "v"))
    other.acquire()
    other.release()


def test_a_strange_exception_does_not_end_the_commits() -> None:
    errors: list[ForebayError | None] = []
    committer = GroupCommitter(lambda source, error: errors.append(error))
    connector = _flaky(2, KeyError("nobody foresaw this"))
    committer.submit("t", connector, SourceCheckpoint({"row": 5, "epoch_ms": 0}, 3))
    assert committer.flush(10)
    committer.close()
    assert connector.current_offsets() is not None
    assert [error is None for error in errors] == [False, False, True]
    assert "nobody foresaw this" in str(errors[0])


def test_a_source_whose_commits_fail_holds_up_no_other() -> None:
    failing = threading.Event()
    committer = GroupCommitter(lambda source, error: failing.set() if error else None)
    committer.submit("away", _flaky(1_000_000), SourceCheckpoint({"row": 1, "epoch_ms": 0}, 1))
    assert failing.wait(10)
    well = _flaky(0)
    for row in range(1, 50):
        committer.submit("well", well, SourceCheckpoint({"row": row, "epoch_ms": 0}, row))

    def committed() -> bool:
        found = well.current_offsets()
        return found is not None and found.epoch >= 49

    eventually(committed, "the other source's offsets are committed", timeout=10)
    committer.close(timeout_s=0.1)


def test_what_two_views_have_behind_them_is_the_lesser_offset_of_each_partition() -> None:
    """Each may lead in another partition, so neither position as a whole would do."""
    one = {"source": "s", "topics": {"t": {"id": "x", "partitions": {"0": 100, "1": 1}}}}
    other = {"source": "s", "topics": {"t": {"id": "x", "partitions": {"0": 40, "1": 9, "2": 5}}}}
    assert earlier(one, other) == {
        "source": "s",
        "topics": {"t": {"id": "x", "partitions": {"0": 40, "1": 1}}},
    }
