"""Forebay's data source in plain PySpark."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.contract import Outcome, Peer, Prepared, Task, serve
from benchmarks.peers.query import COLUMNS, measure_query, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PEER = Peer("Forebay", "benchmarks.peers.forebay_peer", lambda _: Prepared(sys.executable))


def measure(task: Task) -> Outcome:
    from forebay.runtime import spark as forebay_spark

    spark = forebay_spark.start(task.master, spark_settings(task), Path(task.work) / "warehouse")

    def frame(topic: str) -> DataFrame:
        options = {
            "bootstrap.servers": task.bootstrap_servers,
            "topic": topic,
            "group.id": "benchmark",
            "format": "json",
            "startup.mode": "earliest",
            "max.records.per.batch": str(task.batch_records),
            **task.own,
        }
        return spark.readStream.format("forebay").schema(COLUMNS).options(**options).load()

    try:
        return measure_query(frame, task, f"{version('forebay')} on PySpark {version('pyspark')}")
    finally:
        spark.stop()


if __name__ == "__main__":
    serve(measure)
