"""Flink SQL: a mini cluster in one JVM, object reuse and mini-batches on, a bounded read of the topic."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.maven import resolve
from benchmarks.peers.session import Answer, Opening, Reading, serve, window_key
from benchmarks.shapes import Type

NAME = "Flink SQL"
VERSION, KAFKA = "2.2.0", "5.0.0-2.2"
PARTS = (
    "flink-clients", "flink-table-api-java-bridge", "flink-table-runtime", "flink-table-planner-loader",
    "flink-connector-base", "flink-connector-files", "flink-json", "flink-avro", "flink-parquet",
)  # fmt: skip
HADOOP = "3.4.1"  # Flink's Parquet writer takes its settings as Hadoop's
COORDINATES = (
    *(f"org.apache.flink:{part}:{VERSION}" for part in PARTS),
    f"org.apache.flink:flink-connector-kafka:{KAFKA}",
    *(f"org.apache.hadoop:hadoop-client-{part}:{HADOOP}" for part in ("api", "runtime")),
)
SETTINGS = {
    "execution.runtime-mode": "STREAMING",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
    "rest.bind-port": "0",
    "restart-strategy.type": "none",
}
# What Flink's own start scripts open on Java 17.
_OPEN = ("java.lang", "java.net", "java.io", "java.nio", "java.lang.reflect", "java.text", "java.time",
         "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
         "java.util.concurrent.locks", "sun.nio.ch")  # fmt: skip
_TYPES = {"long": "BIGINT", "int": "INT", "double": "DOUBLE", "string": "STRING", "time": "TIMESTAMP(3)"}


def prepare(work: Path) -> Prepared:
    from forebay.devstack.ivy import _ivy_jar
    from forebay.jvm.java import find_java

    java = find_java().path
    jars = resolve(work / f"flink-{VERSION}", COORDINATES, java, _ivy_jar())
    return Prepared(sys.executable, {"java": java, "jars": [str(jar) for jar in jars]})


PEER = Peer(NAME, "benchmarks.peers.flink_sql", prepare)


class FlinkSql:
    """The JVM stays; each reading is a job of its own in it."""

    def __init__(self, opening: Opening, settings: Mapping[str, str] = SETTINGS) -> None:
        self.version = f"{VERSION}, flink-connector-kafka {KAFKA}"
        self._opening = opening
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]
        source = Path(__file__).with_name("FlinkPeer.java")
        command = [opening.own["java"], f"-Xmx{opening.heap}", *opened, "-cp", ":".join(opening.own["jars"])]
        self._jvm = subprocess.Popen(
            [*command, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        cores = opening.master.removeprefix("local[").removesuffix("]")
        self.ask({**settings, "parallelism.default": cores, "taskmanager.numberOfTaskSlots": cores})

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps(question) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            raise RuntimeError(f"Flink's JVM ended with {self._jvm.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def read(self, reading: Reading) -> Answer:
        if reading.query == "rows":
            return self._written(reading)
        rows = self.ask({"statements": [self._table(reading)], "query": _query(reading)})["rows"]
        if reading.query != "windows":
            return {"": rows[-1] if rows else [0, 0]}  # nothing passed the filter: no row
        return {window_key(minute, symbol): [n, total] for minute, symbol, n, total in rows}

    def _written(self, reading: Reading) -> Answer:
        """All rows as Parquet, then what the files hold, by Arrow: another job of Flink's would take a second."""
        from pyarrow import compute, dataset

        folder = Path(self._opening.work) / uuid.uuid4().hex
        columns = {name: flink_type(kind, "") for name, kind in reading.columns.items()}
        taken = {name: f"`{name}`" for name in columns}
        if reading.format != "avro" and "event_time" in columns:
            columns["event_time"] = "TIMESTAMP_LTZ(3)"
            taken["event_time"] = "TO_TIMESTAMP_LTZ(event_time, 3)"
        statements = [self._table(reading), files_table("kept", columns, folder)]
        insert = f"INSERT INTO kept SELECT {', '.join(taken.values())} FROM trades"
        try:
            self.ask({"statements": statements, "inserts": [insert], "await": True})
            rows = dataset.dataset(folder, format="parquet").to_table(columns=[reading.quantity])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return {"": [rows.num_rows, compute.sum(rows[0]).as_py()]}

    def _table(self, reading: Reading, *, bounded: bool = True) -> str:
        avro, windows = reading.format == "avro", reading.query == "windows"
        columns = []
        for name, kind in reading.columns.items():
            if kind == "time" and not avro:  # Flink's JSON reads text as a timestamp, not a number
                columns.append(f"`{name}` BIGINT")
            else:
                columns.append(f"`{name}` {flink_type(kind, ' NOT NULL' if avro else '')}")
        time = "event_time"
        if windows and not avro:
            time = "at"
            columns.append("`at` AS TO_TIMESTAMP_LTZ(event_time, 3)")
        if windows:
            columns.append(f"WATERMARK FOR `{time}` AS `{time}` - INTERVAL '60' SECOND")
        options = {
            "connector": "kafka",
            "topic": reading.topic,
            "properties.bootstrap.servers": self._opening.bootstrap_servers,
            "properties.group.id": uuid.uuid4().hex,
            "properties.isolation.level": "read_committed",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset" if bounded else "unbounded",
            "format": reading.format,
        }
        return table("trades", columns, options)

    def close(self) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        self._jvm.wait()


def table(name: str, columns: Iterable[str], options: Mapping[str, str]) -> str:
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(columns)}) WITH ({written})"


def files_table(name: str, columns: Mapping[str, str], folder: Path) -> str:
    """A folder of Parquet files, by the filesystem connector."""
    options = {"connector": "filesystem", "path": folder.as_uri(), "format": "parquet"}
    return table(name, [f"`{column}` {kind}" for column, kind in columns.items()], options)


def _query(reading: Reading) -> str:
    figures = f"count(*) AS n, sum(CAST({reading.quantity} AS BIGINT)) AS total"
    if reading.query != "windows":
        return f"SELECT {figures} FROM trades" + (f" WHERE {reading.where}" if reading.where else "")
    time = "event_time" if reading.format == "avro" else "at"
    start = "CAST(window_start AS TIMESTAMP_LTZ(3))"
    minute = f"1000 * UNIX_TIMESTAMP(DATE_FORMAT({start}, 'yyyy-MM-dd HH:mm:ss'))"
    return (
        f"SELECT {minute}, symbol, {figures} FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(`{time}`), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, symbol"
    )


def flink_type(kind: Type, null: str) -> str:
    """With NOT NULL on every level Flink derives exactly the plain Avro schema that the topics have."""
    if isinstance(kind, str):
        return _TYPES[kind] + null
    ((nesting, inner),) = kind.items()
    if nesting == "struct":
        return f"ROW<{', '.join(f'`{n}` {flink_type(t, null)}' for n, t in inner.items())}>{null}"
    if nesting == "array":
        return f"ARRAY<{flink_type(inner, null)}>{null}"
    return f"MAP<STRING{null}, {flink_type(inner, null)}>{null}"


if __name__ == "__main__":
    serve(FlinkSql)
