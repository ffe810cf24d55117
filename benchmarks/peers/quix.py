"""Quix Streams: a streaming dataframe in Python.

Count and filter add up in a plain Python object, the cheapest way there is. Windows are per key in Quix, and
a topic whose key is not the symbol has to be grouped first, which goes through a topic of its own; their
state is in RocksDB with a changelog topic, as Quix does it by default.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.environment import virtual_environment
from benchmarks.peers.session import Answer, Opening, Reading, serve, window_key
from benchmarks.shapes import PRICE_ABOVE, names

NAME = "Quix Streams"
VERSION = "3.28.1"
SILENCE_S = 30.0
# Catching up, Quix reads much of one partition before the next: a shorter grace loses records as late.
GRACE_MS = 30 * 60_000


def prepare(work: Path) -> Prepared:
    needs = [f"quixstreams=={VERSION}", "fastavro==1.13.1", "psutil>=7"]
    return Prepared(virtual_environment(work / f"venv-quix-{VERSION}", needs))


PEER = Peer(NAME, "benchmarks.peers.quix", prepare)


class Quix:
    def __init__(self, opening: Opening) -> None:
        self.version = f"{version('quixstreams')} (confluent-kafka {version('confluent-kafka')})"
        self._opening = opening

    def read(self, reading: Reading) -> Answer:
        from quixstreams import Application

        app = Application(
            self._opening.bootstrap_servers,
            consumer_group=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            state_dir=Path(self._opening.work) / uuid.uuid4().hex,
            loglevel="ERROR",
        )
        deserializer: Any = "json" if reading.format == "json" else _bare_avro(reading)
        topic = app.topic(reading.topic, value_deserializer=deserializer, timestamp_extractor=_time(reading))
        tally = Tally(reading, app.stop)
        rows = app.dataframe(topic)
        if reading.query == "windows":
            windows = rows.group_by("symbol").tumbling_window(60_000, grace_ms=GRACE_MS)
            updates = windows.agg(**_aggregates(reading)).current()
            updates.update(tally.window, metadata=True)
        else:
            rows.update(tally.filtered if reading.query == "filter" else tally.counted)
        app.run(timeout=SILENCE_S, collect=False)
        if tally.seen != reading.records:
            raise RuntimeError(f"{tally.seen:,} of {reading.records:,} records, then silence")
        return tally.answer()

    def close(self) -> None:
        pass


class Tally:
    """What the dataframe's last step sees; it stops the application after the last record."""

    def __init__(self, reading: Reading, stop: Callable[[], None]) -> None:
        self._quantity, self._price = names(reading.size)
        self._records = reading.records
        self._stop = stop
        self._windows: Answer = {}
        self.seen = self.passed = self.total = 0

    def counted(self, row: dict[str, Any]) -> None:
        self.passed += 1
        self.total += row[self._quantity]
        self._one_more()

    def filtered(self, row: dict[str, Any]) -> None:
        if row[self._price] > PRICE_ABOVE:
            self.passed += 1
            self.total += row[self._quantity]
        self._one_more()

    def window(self, row: dict[str, Any], key: Any, _timestamp: int, _headers: Any) -> None:
        symbol = key.decode() if isinstance(key, bytes) else key
        self._windows[window_key(row["start"], symbol)] = [row["n"], row["total"]]
        self._one_more()

    def _one_more(self) -> None:
        self.seen += 1
        if self.seen == self._records:
            self._stop()

    def answer(self) -> Answer:
        return self._windows or {"": [self.passed, self.total]}


def _aggregates(reading: Reading) -> dict[str, Any]:
    from quixstreams.dataframe.windows import Count, Sum

    return {"n": Count(), "total": Sum(reading.quantity)}


def _time(reading: Reading) -> Callable[..., int] | None:
    return (lambda row, *_: row["event_time"]) if "event_time" in reading.columns else None


def _bare_avro(reading: Reading) -> Any:
    """Quix's own Avro deserializer does the same. Times stay numbers: its JSON knows no datetime."""
    import fastavro
    from quixstreams.models import Deserializer

    plain = json.loads(reading.schema, object_hook=_without_logical_type)
    schema = fastavro.parse_schema(plain)

    class BareAvro(Deserializer):
        def __call__(self, value: bytes, ctx: Any) -> Any:
            return fastavro.schemaless_reader(io.BytesIO(value), schema, None)

    return BareAvro()


def _without_logical_type(item: dict[str, Any]) -> Any:
    return item["type"] if "logicalType" in item else item


if __name__ == "__main__":
    serve(Quix)
