"""The blackboard's options and names, and that it needs neither Spark nor Flock."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from forebay.blackboard.artifact import decode
from forebay.blackboard.index import Fed, Index
from forebay.blackboard.options import bind, node_name
from forebay.blackboard.topics import Topics
from forebay.errors import ArtifactError, DeniedOptionError, OptionConflictError, UnknownOptionError


def test_importing_the_blackboard_loads_neither_spark_nor_flock() -> None:
    code = "import sys, forebay.blackboard; print([m for m in ('pyspark', 'flock') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_topics_have_the_names_of_the_seed_and_any_prefix_or_name_of_their_own() -> None:
    topics = Topics.of(bind({}))
    assert (topics.artifacts, topics.by_id, topics.processed) == (
        "flock.artifacts",
        "flock.by_id",
        "flock.processed",
    )
    assert (topics.retry(2), topics.dlq("writer")) == ("flock.retry.2", "flock.dlq.writer")
    topics = Topics.of(bind({"topic_prefix": "team.", "topic_by_id": "x", "topic_dlq_prefix": "dead."}))
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


GOOD = {"id": "1", "type": "T", "payload": {}, "produced_by": "p", "created_at": "2026-01-01T00:00:00+00:00"}
WRONG = {
    "id": 1, "type": {}, "payload": [], "produced_by": None, "created_at": 5, "tags": [1], "visibility": "Public",
    "version": "1", "correlation_id": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"[]",
        b"null",
        b'{"id": "1"}',
        None,
        *(json.dumps({**GOOD, k: v}).encode() for k, v in WRONG.items()),
    ],
)
def test_a_record_that_is_no_artifact_is_named_so(value: bytes | None) -> None:
    with pytest.raises(ArtifactError, match="a record is no"):
        decode(value)


@pytest.mark.parametrize("topic", ["by_id", "processed", "consumptions", "agents"])
def test_no_record_stops_the_index(topic: str) -> None:
    topics = Topics.of(bind({}))
    index, name = Index(topics), getattr(topics, topic)
    junk = [
        b"\xff",
        b"{",
        b"[1]",
        b"1",
        b"null",
        b'{"agent_name": 1}',
        *(json.dumps({**GOOD, k: v}).encode() for k, v in WRONG.items()),
    ]
    junk += [b'{"artifact_id": {}, "consumer": 1, "run_id": [], "correlation_id": null, "consumed_at": 2}']
    records = [Fed(name, 0, n, 0, b"\xff" if n % 2 else b"k", value) for n, value in enumerate(junk)]
    index.apply([*records, Fed(name, 0, 99, 0, b"k", None)], {(name, 0): 100}, {name: "id"})
    assert index.positions({name: "id"}) == {(name, 0): 100}
    assert index.refused >= 1
    index.close()
