"""`forebay topic`, `produce` and `consume` on the real broker, as a newcomer types them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fresh
import pytest
from sessions import connect, create_source, name
from support import Cluster, unique
from waiting import eventually

from forebay.devstack import DevStack, state
from forebay.errors import ObjectExistsError, UnknownTopicError

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
PROTO = """syntax = "proto3"; package shop;
message Other { int64 x = 1; }
message Order { message Line { int64 id = 1; string note = 2; } repeated Line lines = 1; }
"""


class Hands:
    """Commands on the tests' broker, without a registry unless one is given."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        self.environment = {"KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "COLUMNS": "160"}

    def __call__(self, *arguments: str, given: str = "", code: int = 0, **environment: str) -> fresh.Done:
        done = fresh.forebay(self.home, *arguments, given=given, **{**self.environment, **environment})
        assert done.code == code, done.words
        assert "Traceback" not in done.words
        return done

    def rows(self, *arguments: str, **environment: str) -> list[dict[str, Any]]:
        lines = self(*arguments, "-o", "jsonl", **environment).out.splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Hands:
    return Hands(cluster, tmp_path)


def test_a_topic_is_created_listed_described_and_deleted(run: Hands) -> None:
    topic = unique("made")
    checked = run("topic", "create", topic, "-p", "3", "--dry-run")
    assert "would be created" in checked.words
    assert run.rows("topic", "ls", topic) == []

    created = run("topic", "create", topic, "-p", "3", "-c", "retention.ms=-1")
    assert (created.out, created.heavy) == ("", [])
    assert f"topic {topic} created, 3 partitions" in created.words
    run("produce", topic, given="a\nb\n")
    listed = run("topic", "ls", topic, "-o", "json")
    assert listed.heavy == []
    assert json.loads(listed.out) == [{"topic": topic, "partitions": 3, "replicas": 1, "records": 2}]
    assert topic in run("topic", "ls").out
    [found] = run.rows("topic", "describe", topic)
    assert len(found["partitions"]) == 3
    assert sum(each["records"] for each in found["partitions"]) == 2
    assert found["config"]["retention.ms"] == "-1"
    assert "retention.ms = -1" in run("topic", "describe", topic).out

    assert f"{topic} (2 records)" in run("topic", "delete", topic, "--dry-run").words
    assert "--yes" in run("topic", "delete", topic, code=2).words  # nobody is there to be asked
    assert len(run.rows("topic", "ls", topic)) == 1
    run("topic", "delete", topic, "--yes")
    eventually(lambda: run.rows("topic", "ls", topic) == [], "it is gone")


def test_delete_asks_a_person_and_no_means_no(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "forebay", "topic", "delete", topic],
            env={**os.environ, **run.environment},
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        seen = ""
        deadline = time.monotonic() + 30
        while "Delete" not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 65536).decode()
        os.write(master, answer)
        assert process.wait(30) == code
        os.close(master)
    eventually(lambda: run.rows("topic", "ls", topic) == [], "it is gone")


def test_wrong_use_of_topics_ends_with_2_and_says_what_to_do(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    assert "FB1102" in run("topic", "create", topic, code=2).words
    assert "exists already" in run("topic", "create", topic, "--if-not-exists").words
    assert "cannot be made" in run("topic", "create", "no/slashes", code=2).words
    assert "cannot be made" in run("topic", "create", unique("x"), "-c", "retention.ms=soon", code=2).words
    assert "name=value" in run("topic", "create", unique("x"), "-c", "retention.ms", code=2).words
    assert "FB3003" in run("topic", "describe", unique("absent"), code=2).words
    assert "FB3003" in run("topic", "delete", unique("absent"), "--yes", code=2).words


@pytest.mark.parametrize("command", ["produce", "consume", "topic describe"])
def test_an_unknown_topic_names_the_command_that_makes_it(run: Hands, command: str) -> None:
    topic = unique("nosuch")
    words = run(*command.split(), topic, code=2).words
    assert "FB3003" in words
    assert f"forebay topic create {topic} --brokers {run.cluster.bootstrap_servers}" in words.replace(
        "\n", " "
    )


def test_an_unknown_topic_of_a_source_names_the_command_too(cluster: Cluster, tmp_path: Path) -> None:
    topic = unique("nosuch")
    with connect(tmp_path) as session, pytest.raises(UnknownTopicError) as caught:
        session.execute(create_source(cluster, name("s"), topic))
    assert f"forebay topic create {topic}" in caught.value.remedy


def test_plain_lines_are_values_as_they_stand(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    done = run("produce", topic, given='one\n\n{"id": 1}\n  two \n')
    assert (done.out, done.heavy) == ("", [])
    assert f"4 records written to {topic}" in done.words
    assert [row["value"] for row in run.rows("consume", topic)] == ["one", "", '{"id": 1}', "  two "]


def test_what_consume_prints_produce_takes_back_unchanged(
    run: Hands, cluster: Cluster, tmp_path: Path
) -> None:
    first, second = cluster.make_topic(2), cluster.make_topic(2)
    records = [
        {"key": "k", "value": "text ✓", "headers": {"h": "1"}, "partition": 1, "timestamp": 1_768_471_200_123},
        {"key_base64": "gP8=", "value_base64": "AP+A", "headers": [["h", None], ["h", {"base64": "/w=="}]], "partition": 0},
        {"key": "gone", "value": None, "partition": 0, "timestamp": 1_768_471_200_124},
        {"value": {"a": [1, 2]}, "partition": 1},
    ]  # fmt: skip
    file = tmp_path / "records.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    assert "4 records would be written" in run("produce", first, str(file), "-e", "--dry-run").words
    assert run.rows("consume", first) == []
    run("produce", first, str(file), "--envelope")
    printed = run("consume", first, "-o", "jsonl")
    assert printed.heavy == []
    run("produce", second, "--envelope", given=printed.out)

    def content(topic: str) -> list[Any]:
        found = run.rows("consume", topic)
        return sorted(
            ([row[key] for key in ("partition", "offset", "timestamp", "headers")] + [row.get("key"), row.get("value")]
             + [row.get("key_base64"), row.get("value_base64")] for row in found),
            key=lambda row: row[:2],
        )  # fmt: skip

    assert content(second) == content(first)
    rows = {row["value"]: row for row in run.rows("consume", first) if "value" in row}
    assert rows["text ✓"]["partition"] == 1
    assert rows["text ✓"]["timestamp"] == 1_768_471_200_123
    assert rows['{"a":[1,2]}']["key"] is None


def test_a_line_that_is_wrong_is_named_and_ends_with_2(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    assert "line 2: not JSON" in run("produce", topic, "-f", "json", given='{"a": 1}\n{oops\n', code=2).words
    words = run("produce", topic, "-e", given='{"value": 1, "partition": 5}\n', code=2).words
    assert "line 1: there is no partition 5" in words
    assert "no file" in run("produce", topic, "nosuch.jsonl", code=2).words
    assert "--format" in run("produce", topic, "--subject", "s", code=2).words


def test_a_rate_is_kept(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    run("produce", topic, "--rate", "20", given="x\n" * 11)
    times = [row["timestamp"] for row in run.rows("consume", topic)]
    assert len(times) == 11
    assert times[-1] - times[0] >= 480  # ten steps of 50 ms


def test_consume_begins_where_it_is_told_to_and_ends_at_the_limit(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    lines = [json.dumps({"value": str(n), "timestamp": 1_768_471_200_000 + n * 1000}) for n in range(10)]
    run("produce", topic, "-e", given="\n".join(lines))

    def values(*arguments: str) -> list[str]:
        return [row["value"] for row in run.rows("consume", topic, *arguments)]

    assert values() == [str(n) for n in range(10)]
    assert values("--from", "7") == ["7", "8", "9"]
    assert values("--from", "999") == []
    assert values("--from", "end") == []
    assert values("--from", "2026-01-15T10:00:06") == ["6", "7", "8", "9"]
    assert values("--from", "2026-01-15T11:00:06+01:00", "--limit", "2") == ["6", "7"]
    assert values("--limit", "3", "--partition", "0") == ["0", "1", "2"]
    assert "a time such as" in run("consume", topic, "--from", "noon", code=2).words
    assert "no partition 4" in run("consume", topic, "--partition", "4", code=2).words
    assert "which topic?" in run("consume", code=2).words


def test_consume_follows_until_the_limit_the_timeout_or_ctrl_c(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(2)

    def follow(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "forebay", "consume", topic, "--follow", "-o", "jsonl", *arguments],
            env={**os.environ, **run.environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    limited, endless = follow("--limit", "3"), follow()
    cluster.produce(topic, ["a", "b"])
    assert endless.stdout is not None
    assert {json.loads(endless.stdout.readline())["value"] for _ in range(2)} == {"a", "b"}
    cluster.produce(topic, ["c"])
    out, words = limited.communicate(timeout=30)
    assert limited.returncode == 0, words
    assert {json.loads(line)["value"] for line in out.splitlines()} == {"a", "b", "c"}
    assert json.loads(endless.stdout.readline())["value"] == "c"
    endless.send_signal(signal.SIGINT)
    out, words = endless.communicate(timeout=30)
    assert (endless.returncode, out, words) == (0, "", "")

    assert "FB4002" in run("consume", topic, "--follow", "--limit", "9", "--timeout", "0.3", code=4).words
    # Long enough for the first record to come on a busy machine.
    assert len(run("consume", topic, "--follow", "--timeout", "5").out.splitlines()) == 3


def test_consume_into_head_ends_quietly(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, ["x" * 1000] * 500)
    done = subprocess.run(
        f"set -o pipefail; {sys.executable} -m forebay consume {topic} | head -n 1",
        shell=True, executable="/bin/bash", env={**os.environ, **run.environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_shows_text_hex_and_headers_and_no_control_characters(run: Hands, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, ["plain", b"\xff\x00", "\x1b[31mred"], key=b"k", headers=[("h", b"1")])
    lines = run("consume", topic).out.splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        "k  plain  h=1", "k  0xff00  h=1", "k  0x1b5b33316d726564  h=1",
    ]  # fmt: skip
    assert "0x706c61696e" in run("consume", topic, "--hex", "--limit", "1").out


def test_consume_decodes_as_a_source_does(run: Hands, cluster: Cluster, tmp_path: Path) -> None:
    topic, source = cluster.make_topic(1), name("orders")
    cluster.produce(topic, ['{"id": 1, "price": 2.5}', '{"id": "x"}'])
    with connect(tmp_path / "home") as session:
        session.execute(create_source(cluster, source, topic, "id BIGINT, price DOUBLE"))
    where = ("consume", "--source", source, "--home", str(tmp_path / "home"))
    good, bad = run.rows(*where, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")  # the source knows its brokers
    assert good["row"] == {"id": 1, "price": 2.5}
    assert good["value"] == '{"id": 1, "price": 2.5}'
    assert bad["error"]["kind"] == "TypeConversion"
    table = run(*where).out
    assert '{"id": 1, "price": 2.5}' in table
    assert "TypeConversion: " in table
    assert "FB1101" in run("consume", "--source", "nosuch", code=2).words


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_values_of_a_registered_schema_are_produced_and_decoded(
    run: Hands, stack: Any, cluster: Cluster, tmp_path: Path, format: str
) -> None:
    topic, source = cluster.make_topic(1), name("registered")
    schema = tmp_path / ("order.avsc" if format == "avro" else "order.proto")
    schema.write_text(json.dumps(AVRO) if format == "avro" else PROTO)
    where = {"SCHEMA_REGISTRY_URL": stack.schema_registry_url}
    arguments = (
        "produce",
        topic,
        "--format",
        format,
        *(["--message", "Line"] if format == "protobuf" else []),
    )
    with_file = (*arguments, "--schema-file", str(schema))
    checked = run(*with_file, "--dry-run", given='{"id": 7}\n{"id": "x"}\n', code=2, **where)
    assert "line 2: does not fit the schema" in checked.words
    # A dry run has registered nothing.
    assert "there is no subject" in run(*arguments, given="{}\n", code=2, **where).words
    run(*with_file, given='{"id": 7, "note": "n"}\n', **where)
    run(*arguments, given='{"id": 8}\n', **where)  # by the subject's newest
    run(*arguments, "-e", given='{"key": "k", "value": {"id": 9}}\n', **where)
    words = run(*arguments, given='{"id": "no number"}\n', code=2, **where).words
    assert "line 1: does not fit the schema" in words

    inner = ", 'protobuf.message' = 'Line'" if format == "protobuf" else ""
    with connect(tmp_path / "home") as session:
        session.execute(
            f"CREATE SOURCE {source} FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{topic}'{inner}) "
            f"FORMAT {format} USING SCHEMA REGISTRY (url = '{stack.schema_registry_url}')"
        )
    found = run.rows("consume", "--source", source, "--home", str(tmp_path / "home"))
    assert [row["row"]["id"] for row in found] == [7, 8, 9]
    assert found[0]["row"]["note"] == "n"
    assert found[2]["key"] == "k"


def test_brokers_are_the_flags_then_the_environments_then_the_dev_stacks(
    run: Hands, cluster: Cluster, broker: DevStack, nowhere: str
) -> None:
    topic = cluster.make_topic(1)
    servers, away = cluster.bootstrap_servers, nowhere
    flagged = run("topic", "ls", topic, "--brokers", servers, KAFKA_BOOTSTRAP_SERVERS=away)
    assert topic in flagged.out
    assert away in run("topic", "ls", "--brokers", away, code=3).words
    assert "FB1202" in run("topic", "ls", "--brokers", "", code=2).words  # a flag wins, also a wrong one
    # As `forebay dev up` leaves it behind.
    pid = broker.broker.process.pid
    known = state.ServiceState(
        pid, state.create_time(pid), "m", int(servers.rpartition(":")[2]), "log", "data"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_STATE", str(run.home / "state"))
        state.save({"broker": known})
    assert topic in run("topic", "ls", topic, KAFKA_BOOTSTRAP_SERVERS="").out
    assert away in run("topic", "ls", KAFKA_BOOTSTRAP_SERVERS=away, code=3).words


@pytest.mark.parametrize("command", ["topic ls", "topic create t", "produce t", "consume t"])
def test_a_local_broker_that_is_away_ends_with_3_within_five_seconds_and_names_dev_up(
    run: Hands, command: str, nowhere: str
) -> None:
    away = nowhere.replace("127.0.0.1", "localhost")
    began = time.monotonic()
    done = run(*command.split(), KAFKA_BOOTSTRAP_SERVERS=away, code=3)
    assert time.monotonic() - began < 15  # five, and a Python that starts on a busy machine
    assert "forebay dev up" in done.words.replace("\n", " ")
    assert away in done.words


def test_produce_gives_up_on_a_broker_that_goes_away(mortal_broker: DevStack, tmp_path: Path) -> None:
    mortal_broker.create_topic(topic := unique("cut-off"))
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", "produce", topic, "--brokers", mortal_broker.bootstrap_servers],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write("before\n")
    process.stdin.flush()
    hands = Hands(Cluster(mortal_broker), tmp_path)
    eventually(lambda: len(hands.rows("consume", topic)) == 1, "it runs")
    mortal_broker.kill_broker()
    began = time.monotonic()
    _, words = process.communicate("after\n", timeout=40)
    assert process.returncode == 3, words
    assert time.monotonic() - began < 12
    assert "1 records were written before" in words.replace("\n", " ")


def test_the_dev_stack_creates_topics_and_produces(
    broker: DevStack, cluster: Cluster, tmp_path: Path
) -> None:
    topic = unique("clicks")
    broker.create_topic(topic, 2, retention_ms=-1)
    assert broker.produce(topic, [{"id": 1}, "text", b"\xff", None, ("k", [1, 2])]) == 5
    rows = Hands(cluster, tmp_path).rows("consume", topic)
    values = [(row["key"], row.get("value"), row.get("value_base64")) for row in rows]
    assert sorted(values, key=str) == sorted(
        [
            (None, '{"id":1}', None),
            (None, "text", None),
            (None, None, "/w=="),
            (None, None, None),
            ("k", "[1,2]", None),
        ],
        key=str,
    )
    with pytest.raises(ObjectExistsError):
        broker.create_topic(topic)
    with pytest.raises(UnknownTopicError, match="no topic"):
        broker.produce(unique("nosuch"), ["x"])
