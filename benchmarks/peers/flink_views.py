"""Flink SQL with a statement set: an INSERT for each view into Parquet files; Flink reads the topic once for all."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contract import Peer
from benchmarks.peers.flink_sql import NAME, SETTINGS, FlinkSql, files_table, prepare
from benchmarks.peers.live import answer, condition, reading
from benchmarks.peers.session import Opening, serve

PEER = Peer(NAME, "benchmarks.peers.flink_views", prepare)
# A file can be read once the checkpoint that it belongs to is complete: this is Flink's freshness.
CHECKPOINT = "1 s"


class FlinkViews(FlinkSql):
    def __init__(self, opening: Opening) -> None:
        super().__init__(opening, {**SETTINGS, "execution.checkpointing.interval": CHECKPOINT})

    def start(self, topic: str, views: int) -> list[Path]:
        folders = [Path(self._opening.work) / f"v{view}" for view in range(views)]
        columns = {"k": "BIGINT", "x": "BIGINT"}
        tables = [files_table(f"v{view}", columns, folder) for view, folder in enumerate(folders)]
        inserts = [f"INSERT INTO v{n} SELECT k, x FROM trades WHERE {condition(n)}" for n in range(views)]
        self.ask({"statements": [self._table(reading(topic), bounded=False), *tables], "inserts": inserts})
        return folders

    def select(self, view: int) -> None:
        raise NotImplementedError("a SELECT is a job of its own here, with files to be listed: not compared")


if __name__ == "__main__":
    serve(FlinkViews, answer)
