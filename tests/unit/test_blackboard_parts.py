"""The blackboard's options and names, and that it needs neither Spark nor Flock."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import inside
import pytest
from foreign_records import GOOD, KEYS, KINDS, foreign, good

from forebay.blackboard import Artifact
from forebay.blackboard.artifact import PlainCodec, decode, decode_fields, encode
from forebay.blackboard.board_topics import BoardTopics
from forebay.blackboard.index import Fed, Index
from forebay.blackboard.options import bind, node_name
from forebay.blackboard.retries import job_of
from forebay.blackboard.stats import Refusals
from forebay.errors import ArtifactError, DeniedOptionError, OptionConflictError, UnknownOptionError


def test_importing_the_blackboard_loads_neither_spark_nor_flock() -> None:
    code = "import sys, forebay.blackboard; print([m for m in ('pyspark', 'flock') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_topics_have_the_names_of_the_seed_and_any_prefix_or_name_of_their_own() -> None:
    topics = BoardTopics.of(bind({}))
    assert (topics.artifacts, topics.by_id, topics.processed) == (
        "flock.artifacts",
        "flock.by_id",
        "flock.processed",
    )
    assert (topics.retry(2), topics.dlq("writer")) == ("flock.retry.2", "flock.dlq.writer")
    topics = BoardTopics.of(bind({"topic_prefix": "team.", "topic_by_id": "x", "topic_dlq_prefix": "dead."}))
    assert (topics.artifacts, topics.by_id, topics.dlq("a")) == ("team.artifacts", "x", "dead.a")


def test_the_environment_names_of_the_seed_set_options_and_keywords_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "KAFKA_BOOTSTRAP_SERVERS": "one:1", "KAFKA_CLIENT_ID": "me", "KAFKA_TX_ENABLE": "true",
        "KAFKA_TX_ID": "flock-orch-n1", "FLOCK_INDEX_WINDOW": "5", "KAFKA_SASL_USERNAME": "u",
        "KAFKA_SASL_PASSWORD": "hidden", "KAFKA_SSL_CA_LOCATION": "/ca.pem",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    options = bind({"index_window": 7})
    assert (options["bootstrap.servers"], options["client.id"], options["transactions"]) == (
        "one:1",
        "me",
        True,
    )
    assert options["index.window"] == 7
    assert options.passed_through() == {
        "sasl.username": "u",
        "sasl.password": "hidden",
        "ssl.ca.location": "/ca.pem",
    }
    assert "hidden" not in repr(options)
    assert node_name(options) == "flock-orch-n1"
    monkeypatch.setenv("KAFKA_SASL_JAAS_CONFIG", "x")
    with pytest.raises(DeniedOptionError, match="login modules"):
        bind({})


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnknownOptionError, match="no option 'topic_artefacts'"):
        bind({"topic_artefacts": "x"})
    with pytest.raises(OptionConflictError, match="must not be above"):
        bind({"lag_low": 20_000})
    with pytest.raises(OptionConflictError, match="read_uncommitted"):
        bind({"transactions": True, "isolation_level": "read_uncommitted"})


@pytest.mark.parametrize("name", foreign("artifacts"))
def test_a_record_that_is_no_artifact_is_named_so(name: str) -> None:
    value = foreign("artifacts")[name]
    for read in (decode, decode_fields):
        with pytest.raises(ArtifactError, match="a record is no"):
            read(value)
    assert decode(good("artifacts")) == decode_fields(good("artifacts")) == GOOD["artifacts"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "artifacts"])
def test_no_record_stops_the_index_and_each_is_refused_by_itself(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = BoardTopics.of(bind({}))
    topic, refusals = getattr(topics, kind), Refusals()
    index = Index(topics, refusals=refusals)
    junk = list(foreign(kind).values())
    records = [Fed(topic, 0, at, 0, KEYS[kind], value) for at, value in enumerate(junk)]
    records += [
        Fed(topic, 0, len(junk), 0, b"\xff", good(kind)),
        Fed(topic, 0, len(junk) + 1, 0, b"\xff", None),
    ]
    count = len(records)
    if kind != "processed":  # whatever key a mark has is a mark's
        records.append(Fed(topic, 0, count, 0, b"another key", good(kind)))
    with caplog.at_level(logging.WARNING, "forebay.blackboard"):
        index.apply(records, {(topic, 0): len(records)}, {topic: "id"})
    assert refusals.by_topic == {topic: len(records)}
    for record in records:
        assert f"{topic}-0 at offset {record.offset} is nothing that a blackboard holds" in caplog.text
    assert inside.count_of(index, topic) == 0
    index.apply([Fed(topic, 0, 200, 0, KEYS[kind], good(kind))], {(topic, 0): 201}, {topic: "id"})
    assert inside.count_of(index, topic) == 1
    assert index.positions({topic: "id"}) == {(topic, 0): 201}
    index.apply([Fed(topic, 0, 201, 0, KEYS[kind], None)], {(topic, 0): 202}, {topic: "id"})
    assert inside.count_of(index, topic) == 0
    assert refusals.total == len(records)
    index.close()


@pytest.mark.parametrize(
    "artifact",
    [
        Artifact("\ud800", {}, "p"),
        Artifact("T", {"deep": ["\udfff"]}, "p"),
        Artifact("T", {}, "p", correlation_id="\ud800"),
        Artifact(5, {}, "p"),  # type: ignore[arg-type]
        Artifact("T", {}, "p", tags=frozenset([1])),  # type: ignore[list-item]
        Artifact("T", json.loads('{"x":' * 300 + "1" + "}" * 300), "p"),
    ],
    ids=range(6),
)
def test_what_nobody_could_read_is_not_published(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match="cannot be"):
        encode(PlainCodec().document(artifact))


def test_a_kept_index_of_an_earlier_form_is_begun_again(tmp_path: Path) -> None:
    topics, path = BoardTopics.of(bind({})), tmp_path / "board.db"
    ids = {topics.by_id: "x"}
    index = Index(topics, path)
    index.apply([Fed(topics.by_id, 0, 0, 0, KEYS["by_id"], good("by_id"))], {(topics.by_id, 0): 1}, ids)
    index.close()
    index = Index(topics, path)
    assert index.positions(ids) == {(topics.by_id, 0): 1}
    index.close()
    db = sqlite3.connect(path)
    db.executescript("ALTER TABLE artifacts DROP COLUMN at_offset; PRAGMA user_version = 0")
    db.close()
    index = Index(topics, path)
    assert index.positions(ids) == {}
    assert index.rows("SELECT at_offset FROM artifacts") == []
    index.close()


def test_marks_and_consumptions_of_another_age_are_let_go_and_artifacts_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from forebay.blackboard import index as module

    monkeypatch.setattr(module, "PRUNED", 2)
    topics = BoardTopics.of(bind({}))
    now_ms, month_ms = int(time.time() * 1000), 30 * 86_400_000
    index = Index(topics, marks_kept_ms=month_ms)
    ids = dict.fromkeys(topics.indexed, "id")
    old_ms = now_ms - month_ms - 1000
    old = [Fed(topics.processed, 0, at, old_ms, b"a%d:x" % at, good("processed")) for at in range(5)]
    young = [Fed(topics.processed, 0, 5, now_ms, b"b:x", good("processed"))]
    young.append(Fed(topics.by_id, 0, 0, old_ms, KEYS["by_id"], good("by_id")))
    index.apply([*old, *young], {(topics.processed, 0): 6, (topics.by_id, 0): 1}, ids)
    for _ in range(3):  # some at a time
        index.apply([], {}, ids)
    assert index.processed([b"a%d:x" % at for at in range(5)] + [b"b:x"]) == {b"b:x"}
    assert inside.count_of(index, topics.by_id) == 1
    index.close()
    for_ever = Index(topics)
    for_ever.apply(old, {(topics.processed, 0): 5}, ids)
    assert len(for_ever.processed([record.key for record in old])) == 5
    for_ever.close()


def test_only_what_came_from_a_topic_that_was_made_anew_is_forgotten(tmp_path: Path) -> None:
    topics = BoardTopics.of(bind({}))
    index = Index(topics)
    ids = dict.fromkeys(topics.indexed, "old")
    for kind in ("by_id", "processed", "consumptions", "agents"):
        topic = getattr(topics, kind)
        index.apply([Fed(topic, 0, 0, 0, KEYS[kind], good(kind))], {(topic, 0): 1}, ids)
    kept = index.positions(ids | {topics.by_id: "new"})
    assert kept == {(topic, 0): 1 for topic in topics.indexed if topic != topics.by_id}
    counts = [
        index.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("artifacts", "processed", "agents")
    ]
    assert counts == [0, 1, 1]
    index.close()


HEADERS = {
    "forebay.retry.attempt": ["-1", "x", "1e3", "9" * 5_000, str(2**70)],
    "forebay.retry.due.ms": ["-1", "soon", str(2**70)],
    "forebay.retry.origin": ["t/0", "t/x/1", "t/-1/5", "//"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in HEADERS.items() for text in texts]
)
def test_headers_of_a_retry_that_make_no_sense_are_refused(name: str, text: str) -> None:
    with pytest.raises(ArtifactError, match="headers of a retry"):
        job_of([(name, text.encode())], ("t", 0, 1))
