"""`forebay dlq` on a topic of letters whose writer is no source of this home: a pool's, an agent's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import inside
import letters as make
import pytest
from pools import pool_on, run_until
from support import Cluster, unique
from typer.testing import CliRunner

import forebay
from forebay.cli.dlq import dlq_app
from forebay.errors import ForebayError, OptionConflictError, UnknownTopicError
from forebay.kafka.admin import Cluster as Admin
from forebay.pool import Record


class Board:
    """A topic of orders, a topic of letters, and a home that knows neither."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        self.topic = cluster.make_topic(2)
        self.dlq = cluster.make_topic(2)
        self.case = make.Case(cluster, "", self.topic, self.dlq)  # for its reading

    def fail(self, name: str, bad: Iterable[bytes], letters: int, **more: Any) -> None:
        """Run a pool of this name, whose handler refuses some values, until so many letters are durable."""
        refused = set(bad)

        async def handler(record: Record) -> None:
            if record.value in refused:
                raise ValueError(f"no such order: {record.value.decode()}")

        pool = pool_on(
            self.cluster, self.topic, name=name, dead_letter_topic=self.dlq, max_attempts=1,
            auto_offset_reset="earliest", **more,
        )  # fmt: skip

        def done() -> bool:
            stats = pool.stats()
            lags = [one.lag for one in stats.partitions]
            return stats.dead_letters == letters and bool(lags) and all(lag == 0 for lag in lags)

        asyncio.run(run_until(pool, handler, done))

    def run(self, *arguments: str, brokers: bool = True) -> str:
        where = ["--topic", self.dlq, "--brokers", self.cluster.bootstrap_servers] if brokers else []
        done = CliRunner().invoke(dlq_app, [*arguments, *where, "--home", str(self.home)])
        if isinstance(done.exception, ForebayError):
            raise done.exception
        assert done.exception is None, done.output
        return done.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return json.loads(self.run("ls", "-o", "json", *arguments))  # type: ignore[no-any-return]

    def states(self) -> dict[str, str]:
        return {row["value"]: row["state"] for row in self.rows("--limit", "0")}


@pytest.fixture
def board(cluster: Cluster, tmp_path: Path) -> Board:
    return Board(cluster, tmp_path / "home")


def test_a_pools_letters_are_found_by_their_topic(board: Board) -> None:
    sent = board.cluster.produce(board.topic, [b"a", b"bad", b"c", b"worse"], key=b"k")
    name = unique("team/billing")  # a group's name may hold what a file's may not
    board.fail(name, [b"bad", b"worse"], 2)
    found = {row["value"]: row for row in board.rows()}
    assert set(found) == {"bad", "worse"}
    place = {message.value(): (message.partition(), message.offset()) for message in sent}
    for value, row in found.items():
        assert (row["source"], row["topic"], row["state"]) == (name, board.topic, "open")
        assert (row["partition"], row["offset"]) == place[value.encode()]
        assert (row["error_kind"], row["error_message"]) == ("ValueError", f"no such order: {value}")
    text = board.run("show", found["bad"]["id"])
    assert "62 61 64" in text  # "bad"
    assert "no such order: bad" in text
    # The remedy can be typed as it is: with the flags that this was found by.
    where = f"--topic {board.dlq} --brokers {board.cluster.bootstrap_servers} --home {board.home}"
    assert f"forebay dlq replay --source {name} {where} --id {found['bad']['id']}" in text.replace("\n", "")
    assert "the handler's traceback:" in text
    assert 'raise ValueError(f"no such order' in text
    assert "forebay/pool" not in text  # the frames that called the handler say nothing
    counted = json.loads(board.run("stats", "-o", "json"))
    assert [row["letters"] for row in counted if row["by"] == "total"] == [2]
    assert len(board.run("export").splitlines()) == 2
    assert "1 letter discarded" in board.run("discard", "-w", "value = 'bad'", "-r", "junk")
    assert board.states() == {"bad": "discarded", "worse": "open"}
    assert "1 letter reopened" in board.run("reopen", "--all")
    assert board.states() == {"bad": "open", "worse": "open"}


def test_a_pools_letter_is_sent_once_and_a_failure_after_that_is_seen(board: Board) -> None:
    board.cluster.produce(board.topic, [b"mended", b"hopeless"])
    name, group = unique("billing"), unique("group")
    board.fail(name, [b"mended", b"hopeless"], 2, group_id=group)
    assert "2 letters" in board.run("replay", "--all", "--dry-run")
    [first] = json.loads(board.run("replay", "--all", "-o", "json"))
    assert (first["source"], first["target"], first["sent"]) == (name, board.topic, 2)
    [second] = json.loads(board.run("replay", "--all", "-o", "json"))
    assert (second["sent"], second["not_open"]) == (0, 2)
    assert sorted(message.value() for message in board.case.cluster.records(board.topic)) == [
        b"hopeless", b"hopeless", b"mended", b"mended",
    ]  # fmt: skip
    board.fail(name, [b"hopeless"], 1, group_id=group)
    found = [(row["value"], row["state"]) for row in board.rows()]
    assert sorted(found) == [("hopeless", "failed_again"), ("hopeless", "open"), ("mended", "replayed")]


def test_two_pools_that_share_a_topic_of_letters_have_each_their_own(board: Board) -> None:
    board.cluster.produce(board.topic, [b"bad"])
    first, second = unique("billing"), unique("shipping")
    for name in (first, second):
        board.fail(name, [b"bad"], 1)
    assert {row["source"] for row in board.rows()} == {first, second}
    with pytest.raises(ForebayError, match="whose letters") as asked:
        board.run("replay", "--all")
    assert first in asked.value.remedy
    assert second in asked.value.remedy
    [done] = json.loads(board.run("replay", "--all", "--source", first, "-o", "json"))
    assert done["sent"] == 1
    assert {row["source"]: row["state"] for row in board.rows()} == {first: "replayed", second: "open"}


def test_a_pools_settings_tell_where_its_letters_are(board: Board, tmp_path: Path) -> None:
    board.cluster.produce(board.topic, [b"bad"])
    name = unique("billing")
    board.fail(name, [b"bad"], 1)
    config = tmp_path / "pool.toml"
    config.write_text(
        f'[pool]\nbootstrap.servers = "{board.cluster.bootstrap_servers}"\ntopic = "{board.topic}"\n'
        f'group.id = "{name}"\ndead.letter.topic = "{board.dlq}"\nkafka = {{"client.id" = "letters"}}\n'
    )
    [row] = json.loads(board.run("ls", "-o", "json", "--config", str(config), brokers=False))
    assert (row["source"], row["value"]) == (name, "bad")


def test_letters_in_python_need_no_source(board: Board) -> None:
    board.cluster.produce(board.topic, [b"bad"])
    name = unique("billing")
    board.fail(name, [b"bad"], 1)
    options = {"bootstrap.servers": board.cluster.bootstrap_servers}
    with forebay.connect(board.home) as session:
        [found] = session.dead_letters_in(board.dlq, options=options)
        assert found.source == name
        letters = session.dead_letters(name, topic=board.dlq, options=options)
        assert [entry.letter.value for entry in letters] == [b"bad"]
        # What was sent on one cluster says nothing about a pool of that name on another.
        admin = Admin(inside.owner_of(letters).options)
        assert inside.owner_of(letters).key == f"{name}@{admin.id()}"
        admin.close()


def test_whose_letters_they_are_is_never_guessed(board: Board) -> None:
    with pytest.raises(UnknownTopicError):
        board.run(
            "ls", "--topic", unique("no-such"), "--brokers", board.cluster.bootstrap_servers, brokers=False
        )
    with pytest.raises(ForebayError, match="needs --topic"):
        board.run("ls", "--brokers", board.cluster.bootstrap_servers, brokers=False)
    with pytest.raises(ForebayError, match="there is no source 'nobody'") as unknown:
        board.run("ls", "--source", "nobody", brokers=False)
    assert "--topic" in unknown.value.remedy
    case = make.case(board.cluster)
    with forebay.connect(board.home) as session:
        session.execute(case.statement())
    with pytest.raises(OptionConflictError, match="knows its brokers"):
        board.run("ls", "--source", case.source)
