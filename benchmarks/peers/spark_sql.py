"""Stock Spark as a careful user writes it: its Kafka source, from_json or from_avro, an update-mode aggregate.

The rows of each micro-batch of an aggregate go into a dictionary in the driver; nothing is written to a table, which is
less work than Forebay's view does. All rows are written as Parquet, by Spark's own sink.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.contract import Peer, Task
from benchmarks.peers.query import spark_settings
from benchmarks.peers.session import Answer, Opening, Reading, serve, window_key
from benchmarks.peers.stock_spark import PEER as STOCK
from benchmarks.peers.stock_spark import VERSION
from benchmarks.shapes import spark_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = STOCK.name
PEER = Peer(NAME, "benchmarks.peers.spark_sql", STOCK.prepare)


class SparkSql:
    def __init__(self, opening: Opening) -> None:
        from pyspark.sql import SparkSession

        self.version = f"PySpark {VERSION}, spark-sql-kafka and spark-avro {VERSION}"
        self._opening = opening
        settings = spark_settings(Task("", "", "", 0, opening.work, master=opening.master, heap=opening.heap))
        builder = SparkSession.builder.master(opening.master).config("spark.jars", opening.own["jars"])
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")

    def read(self, reading: Reading) -> Answer:
        if reading.query == "rows":
            return self._written(reading)
        found: Answer = {}
        query = self._aggregate(self._rows(reading), reading)
        checkpoint = Path(self._opening.work) / uuid.uuid4().hex
        writer = query.writeStream.outputMode("update").trigger(availableNow=True)
        writer = writer.foreachBatch(_collect(found)).option("checkpointLocation", str(checkpoint))
        writer.start().awaitTermination()
        return found

    def _written(self, reading: Reading) -> Answer:
        folder, checkpoint = (Path(self._opening.work) / uuid.uuid4().hex for _ in range(2))
        writer = self._rows(reading).writeStream.format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start(str(folder)).awaitTermination()
        figures = ("count(*) AS n", f"sum({reading.summed}) AS total")
        row = self._spark.read.parquet(str(folder)).selectExpr(*figures).collect()[0]
        shutil.rmtree(folder)
        return {"": [row["n"], row["total"]]}

    def _rows(self, reading: Reading) -> DataFrame:
        from pyspark.sql.avro.functions import from_avro
        from pyspark.sql.functions import col, from_csv, from_json, timestamp_millis

        options = {
            "kafka.bootstrap.servers": self._opening.bootstrap_servers,
            "subscribe": reading.topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",  # Forebay's default
            "maxOffsetsPerTrigger": str(self._opening.batch_records),
        }
        values = self._spark.readStream.format("kafka").options(**options).load()
        if reading.format == "avro":
            return values.select(from_avro("value", reading.schema).alias("v")).select("v.*")
        if reading.format == "raw":
            return values.select("value")
        # from_json takes an epoch number for seconds: read it as it is and convert, as users do.
        schema = spark_columns(reading.columns, time="BIGINT")
        text = col("value").cast("string")
        if reading.format == "csv":
            return values.select(from_csv(text, schema).alias("v")).select("v.*")
        if reading.format == "debezium-json":
            changes = values.select(from_json(text, f"op STRING, after STRUCT<{_nested(schema)}>").alias("c"))
            return changes.select("c.after.*")
        rows = values.select(from_json(text, schema).alias("v")).select("v.*")
        if "event_time" not in reading.columns:
            return rows
        return rows.withColumn("event_time", timestamp_millis("event_time"))

    def _aggregate(self, rows: DataFrame, reading: Reading) -> DataFrame:
        from pyspark.sql.functions import col, count, expr, lit, unix_millis, window
        from pyspark.sql.functions import sum as total

        figures = (count(lit(1)).alias("n"), total(expr(reading.summed)).alias("total"))
        if reading.query == "windows":
            rows = rows.withWatermark("event_time", "60 seconds")
            grouped = rows.groupBy(window("event_time", "1 minute"), "symbol").agg(*figures)
            return grouped.withColumn("minute", unix_millis(col("window.start"))).drop("window")
        return (rows.where(reading.where) if reading.where else rows).agg(*figures)

    def close(self) -> None:
        self._spark.stop()


def _nested(columns: str) -> str:
    """`a INT, b STRING` as the fields of a STRUCT."""
    return ", ".join(column.replace(" ", ": ", 1) for column in columns.split(", "))


def _collect(found: Answer) -> Callable[[DataFrame, int], None]:
    def take(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            key = window_key(row["minute"], row["symbol"]) if "minute" in row else ""
            found[key] = [row["n"], row["total"]]

    return take


if __name__ == "__main__":
    serve(SparkSql)
