"""LaminarDB: a Kafka source and a stream in SQL, the stream's updates read by a subscription.

Quantities are BIGINT: 0.17 panics on the sum of an INT. Windows need a watermark on the number itself, not on
a TIMESTAMP (no window ever comes out of that), and a delay as long as the backlog: it reads its partitions
out of step and drops what is late. Nested columns are JSON, which it keeps as text: it has no other type for
them. Avro without a schema registry it refuses.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.environment import virtual_environment
from benchmarks.peers.session import Answer, Opening, Reading, serve, window_key

NAME = "LaminarDB"
VERSION = "0.17.0"
SILENCE_S = 10.0
POLL_S = 0.002
DELAY_S = 30 * 60
_TYPES = {"long": "BIGINT", "int": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "time": "BIGINT"}


def prepare(work: Path) -> Prepared:
    needs = [f"laminardb=={VERSION}", "pyarrow", "psutil>=7"]
    return Prepared(virtual_environment(work / f"venv-laminardb-{VERSION}", needs))


PEER = Peer(NAME, "benchmarks.peers.laminar", prepare)


class Laminar:
    def __init__(self, opening: Opening) -> None:
        self.version = version("laminardb")
        self._servers = opening.bootstrap_servers

    def read(self, reading: Reading) -> Answer:
        import laminardb

        connection = laminardb.open(":memory:")
        try:
            connection.execute(_source(reading, self._servers))
            connection.execute(f"CREATE STREAM v AS {_query(reading)}")
            updates = connection.subscribe_stream("v")
            connection.start()
            return _follow(updates, connection, reading)
        finally:
            connection.close()

    def close(self) -> None:
        pass


def _follow(updates: Any, connection: Any, reading: Reading) -> Answer:
    """The newest row of each group, until the counts add up or nothing has come for a while."""
    found: Answer = {}
    last = time.monotonic()
    while sum(n for n, _ in found.values()) < reading.counted:
        batch = updates.try_next()
        if batch is not None:
            last = time.monotonic()
            for row in batch.fetchall():
                found[_key(*row[:2]) if len(row) > 2 else ""] = [int(row[-2]), int(row[-1] or 0)]
        elif time.monotonic() - last > SILENCE_S:
            ingested = connection.metrics().total_events_ingested
            raise RuntimeError(f"{ingested:,} of {reading.records:,} records ingested, then silence")
        else:
            time.sleep(POLL_S)
    return found


def _key(symbol: str, minute: datetime) -> str:
    return window_key(round(minute.replace(tzinfo=UTC).timestamp() * 1000), symbol)


def _source(reading: Reading, servers: str) -> str:
    columns = [
        f"{name} {_TYPES[kind] if isinstance(kind, str) else 'JSON'}"
        for name, kind in reading.columns.items()
    ]
    if reading.query == "windows":
        columns.append(f"WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_S}' SECOND")
    options = {
        "bootstrap.servers": servers,
        "topic": reading.topic,
        "group.id": uuid.uuid4().hex,
        "startup.mode": "earliest",
        "auto.offset.reset": "earliest",
        **reading.options,
    }
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE SOURCE t ({', '.join(columns)}) FROM KAFKA ({written}) FORMAT {reading.format.upper()}"


def _query(reading: Reading) -> str:
    if reading.query == "windows":
        minute = "tumble(event_time, INTERVAL '1' MINUTE)"
        keys = f"symbol, {minute}"
        return (
            f"SELECT symbol, {minute} AS minute, {reading.aggregates} FROM t GROUP BY {keys} EMIT ON UPDATE"
        )
    where = f" WHERE {reading.where}" if reading.where else ""
    return f"SELECT {reading.aggregates} FROM t{where}"


if __name__ == "__main__":
    serve(Laminar)
