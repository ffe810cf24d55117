"""Looking at a home with sources in it: quickly, and with the same answers as a session gives."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import fresh
import pytest
from sessions import connect, create_source, events, name
from support import Cluster

SECRET = "hunter2-never-on-disk"


@dataclasses.dataclass(frozen=True)
class Made:
    path: Path
    source: str
    topic: str
    answers: dict[str, Any]  # of a session, by command


@pytest.fixture
def home(cluster: Cluster, tmp_path: Path) -> Made:
    topic, source, path = cluster.make_topic(2), name("orders"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(path) as session:
        session.execute(
            create_source(cluster, source, topic)
            + f" ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{topic}-dlq')"
        )
        session.execute(f"ALTER SOURCE {source} ON ERROR = 'skip'")
        with_secret = create_source(cluster, name("other"), topic, password=SECRET)
        session.execute(with_secret.replace("password =", "'kafka.sasl.password' ="))
        answers = {
            "show sources": session.sql("SHOW SOURCES").rows(),
            "show views": session.sql("SHOW VIEWS").rows(),
            "show queries": session.sql("SHOW QUERIES").rows(),
        }
    return Made(path, source, topic, answers)


def forget_facts(home: Made) -> None:
    """As a catalog was before what statements say was kept beside them."""
    with sqlite3.connect(home.path / "catalog.db") as db:
        for object_name, detail in db.execute("SELECT name, detail FROM objects").fetchall():
            kept = {key: value for key, value in json.loads(detail).items() if "facts" not in key}
            db.execute("UPDATE objects SET detail = ? WHERE name = ?", (json.dumps(kept), object_name))


def test_show_answers_as_a_session_does_without_spark_parser_or_numpy(home: Made) -> None:
    for command, expected in home.answers.items():
        done = fresh.forebay(home.path, *command.split(), "-o", "json")
        assert (done.code, done.heavy) == (0, []), done.words
        assert json.loads(done.out) == expected
    assert [row["on_error"] for row in home.answers["show sources"]].count("skip") == 2


def test_a_catalog_from_before_facts_were_kept_gives_the_same_answers(home: Made) -> None:
    forget_facts(home)
    for command, expected in home.answers.items():
        assert json.loads(fresh.forebay(home.path, *command.split(), "-o", "json").out) == expected


def test_facts_of_another_text_are_not_believed(home: Made) -> None:
    with sqlite3.connect(home.path / "catalog.db") as db:
        db.execute(
            "UPDATE objects SET definition = replace(definition, ?, ?) WHERE name = ?",
            (f"'{home.topic}'", "'elsewhere'", home.source),
        )
    found = json.loads(fresh.forebay(home.path, "show", "sources", "-o", "json").out)
    assert next(row["topic"] for row in found if row["name"] == home.source) == "elsewhere"


def test_letters_from_before_an_alter_are_found_with_and_without_facts(home: Made) -> None:
    with_facts = fresh.forebay(home.path, "dlq", "ls", "--source", home.source)
    assert f"{home.topic}-dlq" in with_facts.words.replace("\n", "")
    forget_facts(home)
    assert fresh.forebay(home.path, "dlq", "ls", "--source", home.source).words == with_facts.words


def test_a_secret_is_not_kept_beside_the_statement_either(home: Made) -> None:
    assert all(SECRET.encode() not in file.read_bytes() for file in home.path.rglob("*") if file.is_file())


def test_lag_is_the_brokers_without_spark_parser_or_numpy(cluster: Cluster, tmp_path: Path) -> None:
    topic, source, path = cluster.make_topic(2), name("lagging"), tmp_path / "home"
    cluster.produce(topic, events(range(10)))
    with connect(path) as session:
        session.execute(create_source(cluster, source, topic))
    done = fresh.forebay(path, "lag", "-o", "json")
    assert (done.code, done.heavy) == (0, []), done.words
    ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
    assert sum(ends.values()) == 10
    found = json.loads(done.out)
    assert all(0 <= each.pop("lag_s") < 120 for each in found)  # its records have just been written
    assert found == [
        {"source": source, "group": source, "topic": topic, "partition": n, "committed": None, "end": ends[n],
         "lag": ends[n], "catch_up": ""}
        for n in range(2)
    ]  # fmt: skip


def test_lag_of_a_broker_that_is_away_ends_with_3_within_five_seconds(
    cluster: Cluster, tmp_path: Path, nowhere: str
) -> None:
    topic, path = cluster.make_topic(1), tmp_path / "home"
    with connect(path) as session:
        source = create_source(cluster, name("away"), topic).replace(cluster.bootstrap_servers, "${BROKERS}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BROKERS", cluster.bootstrap_servers)
            session.execute(source)
    began = time.monotonic()
    done = fresh.forebay(path, "lag", BROKERS=nowhere)
    assert done.code == 3
    assert nowhere in done.words
    assert time.monotonic() - began < 15  # five, and a Python that starts on a busy machine
