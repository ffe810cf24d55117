"""Stock Spark with a query for each view: its Kafka source, from_json, a filter, its Parquet sink."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contract import Peer
from benchmarks.peers.live import answer, condition, reading
from benchmarks.peers.session import serve
from benchmarks.peers.spark_sql import NAME, SparkSql
from benchmarks.peers.stock_spark import PEER as STOCK

PEER = Peer(NAME, "benchmarks.peers.spark_views", STOCK.prepare)


class SparkViews(SparkSql):
    def start(self, topic: str, views: int) -> list[Path]:
        folders = [self._folder(view) for view in range(views)]
        for view, folder in enumerate(folders):
            rows = self._rows(reading(topic)).where(condition(view)).select("k", "x")
            writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}-checkpoint")
            writer.start(str(folder))
        return folders

    def select(self, view: int) -> None:
        self._spark.read.parquet(str(self._folder(view))).selectExpr("count(*)", "max(k)").collect()

    def _folder(self, view: int) -> Path:
        return Path(self._opening.work) / f"v{view}"

    def close(self) -> None:
        for query in self._spark.streams.active:
            query.stop()
        super().close()


if __name__ == "__main__":
    serve(SparkViews, answer)
