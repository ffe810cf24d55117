"""A real YARN on loopback, for tests: a resource manager and one node manager, of the Hadoop that PySpark's client is of."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from scripts.hdfs_server import HADOOP, write_settings
from scripts.spark_cluster import SPARK_HOME

from forebay.devstack.artifacts import ArtifactSet, MavenFile
from forebay.devstack.download import resolve
from forebay.devstack.ports import free_ports
from forebay.jvm.java import find_java

# The resource manager makes certificates with it, whether anybody asks for one or not.
CRYPTOGRAPHY = ArtifactSet(
    "bouncycastle",
    "Bouncy Castle",
    "1.82",
    (
        MavenFile(
            "org.bouncycastle",
            "bcpkix-jdk18on",
            "1.82",
            1151390,
            "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
        ),
        MavenFile(
            "org.bouncycastle",
            "bcprov-jdk18on",
            "1.82",
            8451859,
            "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
        ),
        MavenFile(
            "org.bouncycastle",
            "bcutil-jdk18on",
            "1.82",
            706248,
            "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
        ),
    ),
)
START_S = 120.0
MANAGERS = tuple(
    f"org.apache.hadoop.yarn.server.{each}"
    for each in ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
)
ADDRESSES = (
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
    "yarn.nodemanager.address",
    "yarn.nodemanager.localizer.address",
    "yarn.nodemanager.webapp.address",
)


@dataclass
class YarnCluster:
    """Of one folder. `conf` is what HADOOP_CONF_DIR of a driver must be."""

    folder: Path
    _page: str = ""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    def start(self) -> None:
        """Ready when this returns: a node is there."""
        self._configure()
        for manager in MANAGERS:
            with (self.folder / f"{manager.rpartition('.')[2]}.log").open("wb") as words:
                self._running.append(
                    subprocess.Popen(
                        [*self._java(), manager], stdin=subprocess.DEVNULL, stdout=words, stderr=words
                    )
                )
        deadline = time.monotonic() + START_S
        while not self._has_a_node():
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._running):
                self.stop()
                raise TimeoutError(f"YARN does not start: see {self.folder}")
            time.sleep(0.1)

    def stop(self) -> None:
        """The node manager ends its containers first."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        self._running.clear()

    def _has_a_node(self) -> bool:
        try:
            with urlopen(f"http://{self._page}/ws/v1/cluster/metrics", timeout=5) as answer:
                return bool(json.load(answer)["clusterMetrics"]["activeNodes"])
        except (URLError, OSError, ValueError):
            return False

    def _java(self) -> list[str]:
        jars = [jar for each in (HADOOP, CRYPTOGRAPHY) for jar in resolve(each).glob("*.jar")]
        path = ":".join(map(str, (self.conf, *jars, SPARK_HOME / "jars" / "*")))
        opened = [
            "--add-opens",
            "java.base/java.lang=ALL-UNNAMED",
        ]  # which its injection of dependencies needs
        return [
            find_java().path,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *opened,
            "-cp",
            path,
        ]

    def _configure(self) -> None:
        self.conf.mkdir(parents=True)
        ports = free_ports(len(ADDRESSES))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(ADDRESSES, ports, strict=True)}
        self._page = addresses["yarn.resourcemanager.webapp.address"]
        settings = {
            **addresses,
            "yarn.resourcemanager.scheduler.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
            ),
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.local-dirs": str(self.folder / "local"),
            "yarn.nodemanager.log-dirs": str(self.folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "256",
        }
        write_settings(self.conf / "yarn-site.xml", settings)


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[YarnCluster]:
    """DownloadError where its program cannot be had."""
    made = YarnCluster(folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()
