"""Confluent's Parallel Consumer: its core, with a thread a worker, in one JVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.maven import resolve
from benchmarks.peers.pools import PoolCase
from benchmarks.peers.session import Opening, serve

VERSION = "0.5.3.3"
COORDINATES = (
    f"io.confluent.parallelconsumer:parallel-consumer-core:{VERSION}",
    "org.slf4j:slf4j-nop:2.0.16",
)


def prepare(work: Path) -> Prepared:
    from forebay.devstack.ivy import _ivy_jar
    from forebay.jvm.java import find_java

    java = find_java().path
    jars = resolve(work / f"parallel-consumer-{VERSION}", COORDINATES, java, _ivy_jar())
    return Prepared(sys.executable, {"java": java, "jars": [str(jar) for jar in jars]})


PEER = Peer("Parallel Consumer", "benchmarks.peers.parallel_consumer", prepare)


class ParallelConsumer:
    """The JVM stays, warm; each case is a consumer of its own in it."""

    version = VERSION

    def __init__(self, opening: Opening) -> None:
        self._servers = opening.bootstrap_servers
        source = Path(__file__).with_name("ParallelConsumerPeer.java")
        command = [
            opening.own["java"],
            f"-Xmx{opening.heap}",
            "-cp",
            ":".join(opening.own["jars"]),
            str(source),
        ]
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def handle(self, question: Mapping[str, Any]) -> dict[str, Any]:
        case = PoolCase.from_json(question)
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        words = (self._servers, case.topic, case.group, case.records, case.wait_ms, case.order, case.workers)
        self._jvm.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM ended with {self._jvm.wait()}")
        wall_s, cpu_s = line.split()
        return {"records": case.records, "wall_s": float(wall_s), "cpu_s": float(cpu_s)}

    def close(self) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        self._jvm.wait()


if __name__ == "__main__":
    serve(ParallelConsumer, ParallelConsumer.handle)
