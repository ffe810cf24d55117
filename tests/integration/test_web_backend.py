"""What the dashboard knows and does: beside a session that runs a pipeline, and of a home that another process has open."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sessions
from dashboards import HOSTILE, Pipeline, pipeline
from support import Cluster
from waiting import eventually

from forebay.errors import BadRequestError, ReadOnlyError, UnknownObjectError, UnknownTopicError
from forebay.runtime.session import Session
from forebay.web.backend import Backend


@pytest.fixture(scope="module")
def made(db: Session, cluster: Cluster) -> Iterator[Pipeline]:
    with pipeline(db, cluster) as found:
        found.send(*sessions.events(range(10)), "not json")
        yield found


@pytest.fixture(scope="module")
def looking(made: Pipeline) -> Iterator[Backend]:
    """A dashboard of another process, as far as it can tell: it has no session."""
    backend = Backend(made.session.home)
    yield backend
    backend.close()


def test_the_overview_is_a_graph_from_topic_to_view_and_names_the_letters_as_a_problem(
    made: Pipeline,
) -> None:
    def named() -> bool:
        problems = [each for each in made.backend.overview().problems if each.source == made.source]
        return any("dead letter" in each.title and each.remedy and each.link for each in problems)

    eventually(named, "the letters are counted")
    found = made.backend.overview()
    edges = {(edge.start, edge.end) for edge in found.edges}
    assert (f"topic:{made.topic}", f"source:{made.source}") in edges
    assert (f"source:{made.source}", f"view:{made.view}") in edges
    assert found.live


def test_a_source_has_lag_by_partition_errors_by_kind_and_batch_times(made: Pipeline) -> None:
    page = eventually(
        lambda: (found := made.backend.source(made.source)).row.lag == 0 and found, "the brokers were asked"
    )
    assert page.row.records == 11
    assert page.row.state == "running"
    assert sum(page.errors_by_kind.values()) == 1
    assert [each.partition for each in page.partitions] == [0, 1]
    assert page.watermark_ms is not None
    assert page.watermark_held_by is None or page.watermark_held_by.startswith(made.topic)
    assert page.batch_ms_p50 is not None
    assert page.batch_ms_p50 <= page.batch_ms_p99
    assert page.commits is not None
    assert {column.name for column in page.columns} >= {"id", "k", "v", "ts"}
    assert "CREATE SOURCE" in page.definition


def test_a_dashboard_that_is_started_again_has_the_history(made: Pipeline) -> None:
    eventually(lambda: len(made.backend.history(made.source)) >= 2, "two samples")
    again = Backend(made.session.home)
    try:
        points = again.history(made.source)
    finally:
        again.close()
    assert len(points) >= 2
    assert points == sorted(points, key=lambda each: each.at_ms)


def test_a_view_has_schema_rows_files_and_newest_rows(made: Pipeline) -> None:
    page = made.backend.view(made.view)
    assert [column.name for column in page.columns] == ["id", "k", "v"]
    assert page.rows == 10
    assert page.files
    newest = made.backend.newest(made.view, 3)
    assert len(newest.rows) == 3
    assert newest.cut == 7
    assert made.backend.views()[0].name == made.view


def test_a_tail_gives_changes_as_they_come(made: Pipeline) -> None:
    found: list[int] = []
    started = threading.Event()

    def follow() -> None:
        for changes in made.backend.tail(made.view, timeout=20):
            names = [column.name for column in changes.table.columns]
            assert "_change_type" in names
            found.extend(row[names.index("id")] for row in changes.table.rows)
            if 100 in found:
                return
            started.set()

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(
        lambda: f"reader:{made.view}" in {node.id for node in made.backend.overview().nodes}, "it is a reader"
    )
    made.send(*sessions.events([100]))
    thread.join(30)
    assert 100 in found


def test_statements_give_tables_words_or_an_error_with_its_place(made: Pipeline, looking: Backend) -> None:
    for backend in (made.backend, looking):
        done = backend.execute(f"SELECT count(*) AS n FROM {made.view}; SHOW VIEWS", "me")
        assert done.error is None
        first, second = done.answers
        assert first.table is not None
        assert first.table.rows[0][0] >= 10
        assert second.table is not None
        wrong = backend.execute(f"SELECT id,\n  nonsens(FROM {made.view}", "me")
        assert wrong.error is not None
        assert (wrong.error.line, wrong.error.code[:2]) == (2, "FB")
        assert "^" in wrong.error.caret
    cut = made.backend.execute(f"SELECT * FROM {made.view}", "me", limit=2)
    assert cut.answers[0].table is not None
    assert (len(cut.answers[0].table.rows), cut.answers[0].table.cut) == (2, -1)


def test_what_needs_a_session_says_so_where_there_is_none(made: Pipeline, looking: Backend) -> None:
    done = looking.execute("CREATE MATERIALIZED VIEW w AS SELECT 1 AS one FROM nothing", "me")
    assert done.error is not None
    assert done.error.code == "FB8002"
    assert "--ui" in done.error.remedy
    assert "--attach" in done.error.remedy


def test_completion_knows_sources_views_and_columns(made: Pipeline) -> None:
    offered = {each.text for each in made.backend.complete(f"SELECT * FROM {made.view[:6]}", 14 + 6)}
    assert made.view in offered
    text = f"SELECT i FROM {made.view}"
    assert any(each.text == "id" and each.kind == "column" for each in made.backend.complete(text, 8))


def test_pause_and_resume_work_without_a_session_and_are_in_the_audit_log(
    made: Pipeline, looking: Backend
) -> None:
    assert "paused" in looking.pause(made.source, "ann")
    assert looking.source(made.source).row.paused
    assert "resumed" in looking.resume(made.source, "ann")
    newest = looking.audit(2)
    assert [(row.actor, row.action, row.target, row.outcome) for row in newest] == [
        ("ann", "resume", made.source, "done"),
        ("ann", "pause", made.source, "done"),
    ]
    with pytest.raises(UnknownObjectError):
        looking.pause("nobody", "ann")
    assert looking.audit(1)[0].outcome == "failed"


def test_on_error_can_be_changed(made: Pipeline, looking: Backend) -> None:
    assert "skip" in looking.set_on_error(made.source, "skip", "ann")
    assert looking.source(made.source).row.on_error == "skip"
    policy = f"'dead_letter' WITH (dead_letter_topic = '{made.letters}')"
    made.backend.set_on_error(made.source, policy, "ann")
    assert made.backend.source(made.source).row.on_error == "dead_letter"
    with pytest.raises(BadRequestError):
        made.backend.set_on_error(made.source, f"'skip'; DROP SOURCE {made.source} CASCADE", "ann")
    assert made.source in {row.name for row in made.backend.sources()}


def test_a_read_only_dashboard_changes_nothing_and_says_who_tried(made: Pipeline) -> None:
    backend = Backend(made.session.home, made.session, read_only=True)
    try:
        for change in (
            lambda: backend.pause(made.source, "eve"),
            lambda: backend.resume(made.source, "eve"),
            lambda: backend.set_on_error(made.source, "skip", "eve"),
            lambda: backend.produce(made.topic, None, "x", {}, "eve"),
        ):
            with pytest.raises(ReadOnlyError):
                change()
            assert (backend.audit(1)[0].actor, backend.audit(1)[0].outcome) == ("eve", "refused")
        error = backend.execute(f"DROP SOURCE {made.source} CASCADE", "eve").error
        assert error is not None
        assert error.code == "FB8001"
        assert backend.execute(f"SELECT * FROM {made.view}", "eve").error is None
    finally:
        backend.close()


def test_records_are_browsed_by_offset_and_time_and_as_a_source_decodes_them(made: Pipeline) -> None:
    newest = made.backend.browse(made.topic, limit=4)
    assert len(newest.records) == 4
    first = made.backend.browse(made.topic, partition=0, offset=0, limit=2, source=made.source)
    assert [record.offset for record in first.records] == [0, 1]
    assert first.records[0].row is not None
    assert first.records[0].row["id"] == 0
    assert first.next == {0: 2}
    refused = made.backend.browse(made.topic, limit=100, source=made.source)
    assert next(record.fault for record in refused.records if record.value == "not json")
    assert made.backend.browse(made.topic, timestamp_ms=0, limit=2).records
    with pytest.raises(UnknownTopicError):
        made.backend.browse(f"{made.topic}-nowhere")
    with pytest.raises(BadRequestError):
        made.backend.browse(made.topic, partition=99)


def test_topics_name_who_reads_them_and_whose_letters_they_have(made: Pipeline) -> None:
    topics = {row.name: row for row in made.backend.topics()}
    assert topics[made.topic].sources == [made.source]
    assert topics[made.letters].letters_of == [made.source]
    assert len(topics[made.topic].partitions) == 2


def test_hostile_keys_values_and_headers_come_back_as_inert_text_or_hidden(
    made: Pipeline, cluster: Cluster
) -> None:
    topic = cluster.make_topic(1)
    for text in HOSTILE:
        data = text.encode()
        cluster.produce(topic, [data], key=data, headers=[(text.replace("\x00", ""), data)])
    shown = made.backend.browse(topic, offset=0, limit=50, partition=0)
    assert len(shown.records) == len(HOSTILE)
    for record, text in zip(shown.records, HOSTILE, strict=True):
        assert record.value_hex == text.encode().hex()
        assert record.value is not None
        assert not any(mark in record.value for mark in "\x00\x1b\u202e")
        assert "\x1b" not in record.headers[0].key
    hidden = Backend(made.session.home, made.session, hide_payloads=True)
    try:
        for record in hidden.browse(topic, offset=0, limit=50, partition=0).records:
            assert (record.hidden, record.key, record.value, record.value_hex) == (True, None, None, None)
            assert [header.text for header in record.headers] == [None]
    finally:
        hidden.close()


def test_a_test_record_is_produced_and_audited_without_its_payload(made: Pipeline, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    done = made.backend.produce(topic, "k", "card 4111", {"h": "x"}, "ann")
    assert (done.partition, done.offset) == (0, 0)
    record = made.backend.browse(topic).records[0]
    assert (record.key, record.value, record.headers[0].text) == ("k", "card 4111", "x")
    line = made.backend.audit(1)[0]
    assert (line.action, line.target, line.outcome) == ("produce", topic, "done")
    assert "4111" not in repr(line)
