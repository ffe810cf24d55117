"""Stock Spark: its own Kafka source and `from_json`, in an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.contract import Outcome, Peer, Prepared, Task, serve
from benchmarks.peers.environment import run_checked, virtual_environment
from benchmarks.peers.query import COLUMNS, measure_query, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = "4.0.0"
PACKAGES = ",".join(
    f"org.apache.spark:{name}_2.13:{VERSION}" for name in ("spark-sql-kafka-0-10", "spark-avro")
)
# An epoch number becomes a TIMESTAMP of seconds in from_json: read as it is and convert, as users do.
RAW_COLUMNS = COLUMNS.replace("event_time TIMESTAMP", "event_time BIGINT")
_RESOLVE = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.jars.packages", sys.argv[1]) \\
    .config("spark.jars.ivy", sys.argv[2]).config("spark.driver.host", "127.0.0.1") \\
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false").getOrCreate().stop()
"""


def prepare(work: Path) -> Prepared:
    """PySpark and, by Spark's own Ivy, its jars for Kafka and Avro; both once, then never asked for again."""
    needs = [f"pyspark=={VERSION}", "pyarrow", "numpy", "psutil>=7"]
    python = virtual_environment(work / f"venv-spark-{VERSION}", needs)
    ivy = work / f"ivy-spark-avro-{VERSION}"
    listed = ivy / "jars.json"
    if not listed.exists():
        run_checked([python, "-c", _RESOLVE, PACKAGES, str(ivy)], f"resolve {PACKAGES}")
        listed.write_text(json.dumps(sorted(path.name for path in (ivy / "jars").glob("*.jar"))))
    names = json.loads(listed.read_text())
    # The files themselves: Ivy would look at the network again at each start.
    return Prepared(python, {"jars": ",".join(str(ivy / "jars" / name) for name in names)})


PEER = Peer("stock Spark", "benchmarks.peers.stock_spark", prepare)


def measure(task: Task) -> Outcome:
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import timestamp_millis

    builder = SparkSession.builder.master(task.master).config("spark.jars", task.own["jars"])
    for key, value in spark_settings(task).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def frame(topic: str) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": task.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",  # Forebay's default
            "maxOffsetsPerTrigger": str(task.batch_records),
        }
        values = spark.readStream.format("kafka").options(**options).load()
        rows = values.selectExpr(f"from_json(CAST(value AS STRING), '{RAW_COLUMNS}') AS v").select("v.*")
        return rows.withColumn("event_time", timestamp_millis("event_time"))

    try:
        return measure_query(frame, task, f"PySpark {pyspark.__version__}, spark-sql-kafka {VERSION}")
    finally:
        spark.stop()


if __name__ == "__main__":
    serve(measure)
