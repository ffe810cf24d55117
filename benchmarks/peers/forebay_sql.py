"""Forebay through its own face: a source, a materialized view, and a SELECT from it."""

from __future__ import annotations

import sys
import uuid
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.session import Answer, Opening, Reading, serve, window_key
from benchmarks.shapes import spark_columns

NAME = "Forebay"
PEER = Peer(NAME, "benchmarks.peers.forebay_sql", lambda _: Prepared(sys.executable))
WAIT_S = 3600.0  # the runner's own limit is shorter


class ForebaySql:
    def __init__(self, opening: Opening) -> None:
        import forebay

        self.version = f"{version('forebay')} on PySpark {version('pyspark')}"
        self._opening = opening
        self.db = forebay.connect(
            home=Path(opening.work) / "home",
            master=str(opening.own.get("master", opening.master)),
            spark_conf={"spark.driver.memory": opening.heap},
            storage=opening.own.get("storage"),
        )

    def read(self, reading: Reading) -> Answer:
        source = f"s_{uuid.uuid4().hex[:12]}"
        try:
            self.db.execute(self._source(source, reading) + self._view(source, reading))
            self.db.wait(until_caught_up=True, timeout=WAIT_S)
            what = reading.aggregates if reading.query == "rows" else "*"
            rows = self.db.sql(f"SELECT {what} FROM v_{source}").arrow().to_pylist()
        finally:
            self.db.sql(f"DROP SOURCE IF EXISTS {source} CASCADE")
        if reading.query != "windows":
            return {"": [rows[0]["n"], rows[0]["total"]]}
        return {
            window_key(round(row["minute"].timestamp() * 1000), row["symbol"]): [row["n"], row["total"]]
            for row in rows
        }

    def _source(self, name: str, reading: Reading) -> str:
        columns = spark_columns(reading.columns, time=reading.time)
        if reading.format == "raw":
            columns = "value BINARY"
        if reading.query == "windows":
            columns += ", WATERMARK FOR event_time AS event_time - INTERVAL '60' SECOND"
        options = {
            "bootstrap.servers": self._opening.bootstrap_servers,
            "topic": reading.topic,
            "group.id": name,
            "startup.mode": "earliest",
            "max.records.per.batch": str(self._opening.batch_records),
        }
        options |= reading.options
        if reading.format == "avro" and not reading.options:
            options["avro.schema"] = reading.schema
        written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        form = reading.format.upper()
        return f"CREATE SOURCE {name} ({columns}) FROM KAFKA ({written}) FORMAT {form} {reading.on_error};"

    def _view(self, source: str, reading: Reading) -> str:
        if reading.query == "windows":
            return (
                f"CREATE MATERIALIZED VIEW v_{source} AS SELECT TUMBLE_START(event_time, INTERVAL '1' MINUTE) "
                f"AS minute, symbol, {reading.aggregates} FROM {source} "
                "GROUP BY TUMBLE(event_time, INTERVAL '1' MINUTE), symbol EMIT CHANGES"
            )
        if reading.query == "rows":
            return f"CREATE MATERIALIZED VIEW v_{source} AS SELECT * FROM {source}"
        where = f" WHERE {reading.where}" if reading.where else ""
        return f"CREATE MATERIALIZED VIEW v_{source} AS SELECT {reading.aggregates} FROM {source}{where}"

    def close(self) -> None:
        self.db.close()


if __name__ == "__main__":
    serve(ForebaySql)
