"""A real HDFS on loopback, for tests: one name node and one data node, of the Hadoop that PySpark's client is of."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from forebay.devstack.artifacts import ArtifactSet, MavenFile
from forebay.devstack.download import resolve
from forebay.jvm.java import find_java

HADOOP = ArtifactSet(
    "hadoop",
    "Apache Hadoop",
    "3.5.0",
    (
        MavenFile(
            "org.apache.hadoop",
            "hadoop-client-minicluster",
            "3.5.0",
            56006450,
            "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
        ),
    ),
)
# What PySpark has: the client, which the servers are made of as well, and something to log with.
FROM_PYSPARK = (
    "hadoop-client-api-*.jar",
    "hadoop-client-runtime-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "jcl-*.jar",
)
START_S = 90.0
NAME_NODE, DATA_NODE = (
    f"org.apache.hadoop.hdfs.server.{each}" for each in ("namenode.NameNode", "datanode.DataNode")
)


@dataclass
class HdfsServer:
    """Of one folder. What is written is there again after a stop and a start."""

    folder: Path
    port: int
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    def url(self, folder: str) -> str:
        return f"hdfs://127.0.0.1:{self.port}/{folder}"

    def start(self) -> None:
        """Ready when this returns: it takes files."""
        if not (self.folder / "name").exists():
            self._configure()
            subprocess.run(
                [*self._java(), NAME_NODE, "-format", "-nonInteractive"],
                check=True, timeout=START_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        for node in (NAME_NODE, DATA_NODE):
            with (self.folder / f"{node.rpartition('.')[2]}.log").open("ab") as words:
                self._running[node] = subprocess.Popen(
                    [*self._java(), node], stdin=subprocess.DEVNULL, stdout=words, stderr=words
                )
        deadline = time.monotonic() + START_S
        while not self._takes_files():
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._running.values()):
                self.stop()
                raise TimeoutError(f"HDFS does not start: see {self.folder}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Both nodes are killed. What was closed is on the disk."""
        for process in self._running.values():
            process.kill()
            process.wait(30)
        self._running.clear()

    def _takes_files(self) -> bool:
        """Whether the data node has reported its blocks: the name node leaves its safe mode then."""
        import json
        from urllib.error import URLError
        from urllib.request import urlopen

        query = f"http://127.0.0.1:{self.port + 1}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
        try:
            with urlopen(query, timeout=5) as answer:
                [info] = json.load(answer)["beans"]
        except (URLError, OSError, ValueError):
            return False
        return not info["Safemode"] and info["LiveNodes"] != "{}"

    def _java(self) -> list[str]:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        jars = Path(spec.origin).parent / "jars"
        files = [*resolve(HADOOP).glob("*.jar"), *(jar for each in FROM_PYSPARK for jar in jars.glob(each))]
        path = ":".join(map(str, (self.folder / "conf", *files)))
        return [find_java().path, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]

    def _configure(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        here = "127.0.0.1"
        write_settings(conf / "core-site.xml", {"fs.defaultFS": f"hdfs://{here}:{self.port}"})
        settings = {
            "dfs.namenode.name.dir": (self.folder / "name").as_uri(),
            "dfs.datanode.data.dir": (self.folder / "data").as_uri(),
            "dfs.namenode.http-address": f"{here}:{self.port + 1}",
            "dfs.datanode.address": f"{here}:0",
            "dfs.datanode.http.address": f"{here}:0",
            "dfs.datanode.ipc.address": f"{here}:0",
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
        }
        write_settings(conf / "hdfs-site.xml", settings)


def write_settings(path: Path, settings: dict[str, str]) -> None:
    rows = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
    )
    path.write_text(f"<configuration>{rows}</configuration>")


@contextmanager
def hdfs_server(folder: Path) -> Iterator[HdfsServer]:
    """DownloadError where its program cannot be had."""
    made = HdfsServer(folder, _two_ports())
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _two_ports() -> int:
    """One that is free, with the next one free as well."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
