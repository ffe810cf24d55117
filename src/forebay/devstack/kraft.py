"""What a single broker that is its own controller needs on disk: properties and formatted storage."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from forebay.devstack.ports import HOST
from forebay.errors import StackStartError
from forebay.jvm.java import Java

NODE_ID = 1


def server_properties(
    data: Path, client: int, internal: int, controller: int, more: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The settings of the broker.

    Three listeners: CLIENT is the public one, so that tests can put SASL on it; INTERNAL stays plain
    and is where the broker talks to itself and where readiness is asked. `more` are further public ones.
    """
    listeners = {"CLIENT": client, "INTERNAL": internal, **(more or {}), "CONTROLLER": controller}
    urls = [f"{name}://{HOST}:{port}" for name, port in listeners.items()]
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller}",
        "listeners": ",".join(urls),
        "advertised.listeners": ",".join(urls[:-1]),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        # Spelling mistakes in a topic's name are errors, as they should be in production.
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        # Records keep for ever: tests write timestamps of long ago, which retention would delete at once.
        "log.retention.ms": "-1",
        "group.initial.rebalance.delay.ms": "0",
        # A consumer that is killed may be missed sooner than after the 6 s that brokers ask for by default.
        "group.min.session.timeout.ms": "1000",
        # A killed broker may come back only when its old session has ended; the default is 9 s.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Records that only say that the controller lives, twice a second, to followers that it does not have.
        "metadata.max.idle.interval.ms": "0",
        # One broker holds every internal topic; few partitions make their creation quick.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file that only its owner may read: it may hold SASL passwords."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        javaproperties.dump(properties, handle, timestamp=None)


def format_storage(data: Path, home: Path, java: Java) -> None:
    """Make `data` a formatted, empty log directory; one that is formatted already is left alone.

    Kafka's own tool takes a second of JVM per run. Of what it writes only the ids differ from run to
    run, so it runs once per cache; its `bootstrap.checkpoint` (the feature levels) is copied after that.
    """
    if (data / "meta.properties").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    template = home / "bootstrap.checkpoint"
    if not template.exists():
        _make_template(template, home, java)
    shutil.copyfile(template, data / template.name)
    ids = {"version": "1", "node.id": str(NODE_ID), "cluster.id": _new_id(), "directory.id": _new_id()}
    write_properties(data / "meta.properties", ids)


def classpath(home: Path) -> str:
    """Sorted, because a class archive fits only the classpath it was made with."""
    return os.pathsep.join(str(jar) for jar in sorted(home.glob("*.jar")))


def _make_template(template: Path, home: Path, java: Java) -> None:
    with tempfile.TemporaryDirectory(prefix=".format-", dir=home) as work:
        data, config = Path(work) / "data", Path(work) / "server.properties"
        write_properties(config, server_properties(data, 1, 2, 3))
        command = [java.path, "-XX:TieredStopAtLevel=1", "-cp", classpath(home), "kafka.tools.StorageTool"]
        command += ["format", "--cluster-id", _new_id(), "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise StackStartError(f"Kafka's storage could not be formatted: {done.stderr.strip()[-2000:]}")
        (data / template.name).replace(template)


def _new_id() -> str:
    """A Kafka Uuid. One that starts with a dash would read as an option on a command line."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
