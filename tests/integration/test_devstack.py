"""The embedded stack, for real: JVMs, sockets, processes that die."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import commands
import javaproperties
import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from forebay.devstack import DevStack, service
from forebay.devstack.artifact_cache import is_complete
from forebay.devstack.artifacts import KAFKA, load_set
from forebay.devstack.broker import Broker
from forebay.devstack.download import resolve
from forebay.devstack.ports import HOST, free_ports
from forebay.devstack.registry_service import RegistryServer
from forebay.devstack.service import Service
from forebay.errors import OptionValueError, StackNotRunningError, StackStartError

OWNER = """
import sys, threading
from forebay.devstack import DevStack
stack = DevStack(registry=True)
starter = threading.Thread(target=stack.start)  # a thread that ends must not take the JVMs with it
starter.start(); starter.join()
print(stack.broker.process.pid, stack.registry.process.pid, stack.broker.directory.parent, flush=True)
sys.stdin.read()
"""
RESOLVE = """
from forebay.devstack.artifacts import KAFKA, load_set
from forebay.devstack.download import resolve
from forebay.errors import ForebayError
try:
    print(resolve(load_set(KAFKA)))
except ForebayError as error:
    print(error)
    raise SystemExit(error.exit_code)
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[DevStack]:
    with DevStack(registry=True) as running:
        yield running


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def create_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # a temporary would be gone before the answer
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def cluster_id(servers: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    return str(admin.describe_cluster().result(30).cluster_id)


def produce(servers: str, topic: str, value: bytes) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def consume_one(servers: str, topic: str, group: str = "test") -> bytes:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                return bytes(value)
    finally:
        consumer.close()
    raise AssertionError("no record")


def call(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        connection.request(method, parts.path + path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_record_goes_in_and_comes_out(stack: DevStack) -> None:
    create_topic(stack.bootstrap_servers, "round-trip")
    produce(stack.bootstrap_servers, "round-trip", b"hello")
    assert consume_one(stack.bootstrap_servers, "round-trip") == b"hello"


def test_a_topic_nobody_created_is_an_error_and_not_a_topic(stack: DevStack) -> None:
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    assert admin.list_topics("misspelt", timeout=10).topics["misspelt"].error is not None
    assert "misspelt" not in admin.list_topics(timeout=10).topics


def test_the_registry_keeps_a_schema_and_lets_it_be_deleted(stack: DevStack) -> None:
    url = stack.schema_registry_url
    assert url
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    code, answer = call(url, "POST", "/subjects/orders-value/versions", {"schema": schema})
    assert code == 200
    assert json.loads(call(url, "GET", f"/schemas/ids/{answer['id']}")[1]["schema"]) == json.loads(schema)
    assert call(url, "DELETE", "/subjects/orders-value")[0] == 200


def test_transactions_commit_on_the_single_broker(stack: DevStack) -> None:
    create_topic(stack.bootstrap_servers, "transactional")
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transactional", b"once")
    producer.commit_transaction(30)
    assert consume_one(stack.bootstrap_servers, "transactional") == b"once"


def test_a_killed_broker_comes_back_on_its_port_with_its_data_and_others_are_left_alone(
    stack: DevStack,
) -> None:
    with DevStack() as second:
        servers, process = second.bootstrap_servers, second.broker.process
        assert process
        assert second.schema_registry_url is None
        assert cluster_id(servers) != cluster_id(
            stack.bootstrap_servers
        )  # though formatted from one template
        create_topic(servers, "survivor")
        produce(servers, "survivor", b"still here")
        second.kill_broker()
        assert is_gone(process.pid)
        second.start_broker()
        assert second.bootstrap_servers == servers
        assert consume_one(servers, "survivor") == b"still here"
        second.restart_broker()
        assert consume_one(servers, "survivor", group="again") == b"still here"
        last = second.broker.process
        assert last
    assert is_gone(last.pid)
    assert stack.broker.running
    assert stack.registry
    assert stack.registry.running
    AdminClient({"bootstrap.servers": stack.bootstrap_servers}).list_topics(timeout=10)


def test_data_in_a_folder_of_ones_own_is_kept_and_temporary_data_is_not(tmp_path: Path) -> None:
    with DevStack(data_dir=tmp_path) as first:
        create_topic(first.bootstrap_servers, "kept")
    with DevStack(data_dir=tmp_path) as second:
        topics = AdminClient({"bootstrap.servers": second.bootstrap_servers}).list_topics(timeout=10).topics
        assert "kept" in topics


@pytest.mark.parametrize("security", ["mtls", "acl"])
def test_a_secured_stack_lets_in_who_it_knows_and_nobody_else(security: str, tmp_path: Path) -> None:
    """sasl-ssl is acl without ACLs; tests of a blackboard run on it."""
    with DevStack(security=security, data_dir=tmp_path) as stack:
        stack.create_topic("orders")
        assert stack.produce("orders", [{"id": 1}]) == 1  # the stack itself may do everything
        known = {"bootstrap.servers": stack.bootstrap_servers, **stack.client_settings()}
        assert AdminClient(known).list_topics(timeout=10).brokers
        files = [
            path
            for path in (tmp_path / "broker").rglob("*")
            if path.suffix in (".key", ".pem", ".json", ".env")
        ]
        assert len(files) > 5
        private = [*files, *(tmp_path / "broker").rglob("*.properties")]
        assert {oct(path.stat().st_mode & 0o777) for path in private} == {"0o600"}
        secret = known.get("sasl.password", "no such text")
        assert secret not in repr(stack) + stack.broker.log.read_text()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": known["bootstrap.servers"], "log_level": 0}).list_topics(
                timeout=2
            )
        internal = read_properties(tmp_path)["listeners"].partition("INTERNAL://")[2].partition(",")[0]
        with pytest.raises(KafkaException):  # nor is there a way round it
            AdminClient({"bootstrap.servers": internal, "log_level": 0}).list_topics(timeout=2)


def read_properties(folder: Path) -> dict[str, str]:
    return javaproperties.loads((folder / "broker" / "server.properties").read_text())


def test_a_word_that_is_no_security_is_refused() -> None:
    with pytest.raises(OptionValueError, match="sasl-ssl, mtls, acl"):
        DevStack(security="tls")


def test_a_port_in_use_is_said_at_once(stack: DevStack) -> None:
    port = stack.broker.known_port
    with pytest.raises(StackStartError, match=f"port {port} is in use"):
        DevStack(broker_port=port).start()


@pytest.mark.parametrize("kind", [Broker, RegistryServer])
def test_a_port_lost_between_choosing_and_binding_is_replaced_by_another(
    kind: type[Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as thief:
        thief.bind((HOST, 0))
        thief.listen()
        lost = thief.getsockname()[1]
        choices = iter([[lost]])
        monkeypatch.setattr(service, "free_ports", lambda count: next(choices, None) or free_ports(count))
        server = kind(tmp_path / "server")
        try:
            server.start()
            assert server.running
            assert server.port != lost
        finally:
            server.stop()


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    with pytest.raises(StackStartError, match=r"log\.segment\.bytes"):
        DevStack(broker_properties={"log.segment.bytes": "nonsense"}).start()


def test_a_stack_that_is_not_started_says_so() -> None:
    stack = DevStack()
    with pytest.raises(StackNotRunningError):
        _ = stack.bootstrap_servers
    stack.stop()


def test_the_servers_and_their_data_go_when_their_owner_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin
    assert owner.stdout
    with owner:
        broker, registry, folder = owner.stdout.readline().split()
        pids = [int(broker), int(registry)]
        assert not any(is_gone(pid) for pid in pids)
        owner.send_signal(signal.SIGKILL)
    for pid in pids:
        eventually(lambda pid=pid: is_gone(pid), f"JVM {pid} ends")  # type: ignore[misc]
    eventually(lambda: not Path(folder).exists(), "temporary data is removed")


@pytest.fixture
def local_repository(tmp_path: Path) -> Path:
    """A Maven repository in a folder, filled from the cache: Ivy works for real, the network is spared."""
    home, repository = resolve(load_set(KAFKA)), tmp_path / "repository"
    for artifact in load_set(KAFKA).artifacts:
        folder = repository.joinpath(*artifact.group.split("."), artifact.name, artifact.version)
        folder.mkdir(parents=True)
        shutil.copy(home / artifact.file_name, folder)
    return repository


def resolving(tmp_path: Path, repository: str, **environment: str) -> subprocess.Popen[str]:
    settings = {"FOREBAY_CACHE": str(tmp_path / "cache"), "FOREBAY_MAVEN_REPOSITORY": repository}
    return subprocess.Popen(
        [sys.executable, "-c", RESOLVE],
        env={**os.environ, **settings, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_of_two_processes_with_an_empty_cache_one_downloads_and_both_go_on(
    tmp_path: Path, local_repository: Path
) -> None:
    both = [resolving(tmp_path, local_repository.as_uri()) for _ in range(2)]
    results = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    homes = {Path(out.strip()) for out, _ in results}
    assert len(homes) == 1
    home = homes.pop()
    assert is_complete(home)
    assert sum("Downloading" in words for _, words in results) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [home.name]

    offline = resolving(tmp_path, "file:///nowhere", PATH="", JAVA_HOME="")
    out, words = offline.communicate(timeout=60)
    assert (offline.returncode, Path(out.strip()), words) == (0, home, "")


def test_an_altered_jar_is_refused_and_nothing_is_kept(tmp_path: Path, local_repository: Path) -> None:
    jar = next(local_repository.rglob("re2j-*.jar"))
    jar.write_bytes(jar.read_bytes()[:-1] + b"!")
    process = resolving(tmp_path, local_repository.as_uri())
    out, _ = process.communicate(timeout=120)
    assert out.startswith(f"FB5003: {jar.name} has SHA-256 ")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".kafka.lock"]


def test_a_repository_that_is_out_of_reach_is_a_download_error_with_a_remedy(tmp_path: Path) -> None:
    process = resolving(tmp_path, "http://127.0.0.1:9/")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert out.startswith("FB5002: ")
    assert "Connection refused" in out
    assert "remedy: check the network" in out


@pytest.mark.parametrize(
    "security", ["sasl-ssl", *(pytest.param(word, marks=pytest.mark.long) for word in ("mtls", "acl"))]
)
def test_a_pipeline_runs_on_a_secured_stack_that_the_command_has_started(
    security: str, tmp_path: Path
) -> None:
    environment = {
        **os.environ, "FOREBAY_STATE": str(tmp_path / "state"), "FOREBAY_HOME": str(tmp_path / "home"), "COLUMNS": "200",
    }  # fmt: skip

    def command(*arguments: str) -> str:
        done = commands.forebay(*arguments, environment=environment, cwd=tmp_path, timeout=150)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    port = str(free_ports(1)[0])
    told = json.loads(
        command("dev", "up", "--no-registry", "--port", port, "--security", security, "-o", "json")
    )
    try:
        environment.update(dotenv(Path(told["client_environment"])))
        if security == "acl":
            everything = [word for what in ("topic", "group") for word in (f"--{what}", "*")]
            command(
                "dev", "acls", "--add", "--allow-principal", "User:forebay", "--operation", "All", *everything
            )
        for topic in ("orders", "orders.dlq"):
            command("topic", "create", topic, "--if-not-exists")
        records = tmp_path / "orders.jsonl"
        records.write_text('{"id": 1}\n{"id": "none"}\n{"id": 2}\n')
        command("produce", "orders", str(records))
        given = [f"'kafka.{name.removeprefix('KAFKA_').lower().replace('_', '.')}' = '${{{name}}}'"
                 for name in environment if name.startswith(("KAFKA_SASL_", "KAFKA_SSL_", "KAFKA_SECURITY_"))]  # fmt: skip
        (tmp_path / "pipeline.sql").write_text(
            "CREATE SOURCE orders (id BIGINT) FROM KAFKA (brokers = '${KAFKA_BOOTSTRAP_SERVERS}', topic = 'orders', "
            f"{', '.join(given)}) FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'orders.dlq');\n"
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders;\n"
        )
        run = [
            sys.executable,
            "-m",
            "forebay",
            "run",
            "pipeline.sql",
            "--until-caught-up",
            "--timeout",
            "120",
        ]
        ran = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=150)
        assert ran.returncode == 0, ran.stderr
        found = json.loads(command("sql", "-o", "json", "-e", "SELECT id FROM v ORDER BY id"))
        assert found == [{"id": 1}, {"id": 2}]
        [letter] = json.loads(command("dlq", "ls", "-o", "json"))
        assert (letter["topic"], letter["offset"]) == ("orders", 1)
    finally:
        command("dev", "down", "--wipe")
    assert is_gone(told["broker"]["pid"])


def dotenv(path: Path) -> dict[str, str]:
    """What a shell has in its environment that has read the file."""
    done = subprocess.run(
        ["sh", "-c", 'set -a; . "$0"; env -0', str(path)], capture_output=True, text=True, check=True
    )
    return dict(
        line.split("=", 1)
        for line in done.stdout.split("\0")
        if line.startswith("KAFKA_") or line.startswith("FOREBAY_KAFKA")
    )


def test_dev_up_status_logs_and_down_manage_one_stack(tmp_path: Path) -> None:
    port, registry_port = (str(port) for port in free_ports(2))

    def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "FOREBAY_STATE": str(tmp_path)}
        return commands.forebay("dev", *arguments, environment=environment, timeout=120)

    try:
        first = dev("up", "--no-registry", "--port", port, "-o", "json")
        assert first.returncode == 0, first.stderr
        told = json.loads(first.stdout)
        assert told["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert told["schema_registry_url"] is None
        create_topic(told["bootstrap_servers"], "kept")

        second = json.loads(dev("up", "--registry-port", registry_port, "-o", "json").stdout)
        assert second["broker"] == told["broker"]
        assert call(second["schema_registry_url"], "GET", "/subjects") == (200, [])

        other = dev("up", "--security", "acl")
        assert other.returncode == 1
        assert "the broker runs already, with security off" in " ".join(other.stderr.split())
        assert "forebay dev up --security acl" in dev("acls", "--list").stderr
        again = dev("up", "-o", "json")
        assert (again.returncode, json.loads(again.stdout)) == (0, second)
        assert "Already up" in again.stderr
        assert json.loads(dev("status", "-o", "json").stdout) == second
        assert second["schema_registry_url"] in dev("status").stdout
        assert "Kafka Server started" in dev("logs", "broker", "-n", "500").stdout

        assert dev("down").returncode == 0
        assert is_gone(second["broker"]["pid"])
        assert is_gone(second["registry"]["pid"])
        assert dev("status").returncode == 3
        assert "Nothing was running" in dev("down").stderr

        servers = json.loads(dev("up", "--no-registry", "--port", port, "-o", "json").stdout)[
            "bootstrap_servers"
        ]
        assert "kept" in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
    finally:
        dev("down", "--wipe")
    assert not (tmp_path / "broker").exists()
