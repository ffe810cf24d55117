"""Where the time of Forebay's own path goes, stage by stage, in one process without Spark.

Each stage runs by itself over the same records, untraced: a profiler would charge the many small Python
calls for its own work. The splits are those of one Spark micro-batch after another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from rich.console import Console

from benchmarks.peers.query import COLUMNS
from benchmarks.report import Grid, Section
from benchmarks.topics import produce
from forebay.connectors.contract import SourceConfig, Split
from forebay.devstack import DevStack
from forebay.formats import decoder
from forebay.formats.json_text import parse_fast
from forebay.kafka.connector import KafkaSource
from forebay.kafka.consumers import CACHE
from forebay.kafka.offsets import KafkaSplit
from forebay.kafka.reader import RangeReader
from forebay.kafka.settings import consumer_settings

CORES = 2
_TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "INT": IntegerType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "TIMESTAMP": TimestampType(),
}
TITLE = "Where Forebay's time goes"


@dataclass(frozen=True)
class Spent:
    """Seconds of one stage."""

    wall_s: float
    cpu_s: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


def measure(console: Console, records: int = 1_000_000, partitions: int = 4, batch: int = 250_000) -> Section:
    schema = _schema()
    with DevStack() as stack:
        produce(stack.bootstrap_servers, "trades", records, partitions)
        console.print(f"reading {records:,} records in one process, stage by stage")
        options = {
            "bootstrap.servers": stack.bootstrap_servers,
            "topic": "trades",
            "group.id": "hotspots",
            "format": "json",
            "startup.mode": "earliest",
        }
        source = KafkaSource(SourceConfig("hotspots", "kafka", options, schema))
        try:
            splits = list(_splits(source, batch))
            values: list[bytes | None] = []
            fetch = _timed(lambda: _fetch(source, splits, values))
            read = _timed(lambda: [None for split in splits for _ in source.read_batch(split)])
        finally:
            source.close()
            CACHE.close()
    chunk = source.options["max.poll.records"]
    decode = decoder("json", schema, {}).decode
    decoding = _timed(lambda: [decode(values[i : i + chunk]) and None for i in range(0, len(values), chunk)])
    parsing = _timed(lambda: [parse_fast(value) and None for value in values if value is not None])
    stages = (
        ("fetch: librdkafka, a Python object a message, range checks", fetch),
        ("decode: parse JSON", parsing),
        ("decode: check and convert each value, build Arrow columns", decoding - parsing),
        ("all of read_batch, measured as a whole", read),
    )
    each = 1e6 / len(values)
    rows = tuple(
        (name, f"{spent.cpu_s * each:.2f}", f"{spent.cpu_s / read.cpu_s:.0%}", f"{spent.wall_s * each:.2f}")
        for name, spent in stages
    )
    intro = (
        f"`KafkaSource.read_batch` over {len(values):,} records in one process without Spark, the splits of "
        f"micro-batches of {batch:,}; the Python reference decoder."
    )
    top = max(stages[:3], key=lambda stage: stage[1].cpu_s)
    notes = (
        f"Most CPU time goes into “{top[0]}”: {top[1].cpu_s / read.cpu_s:.0%} of that of read_batch.",
        f"Fetching takes {fetch.wall_s * each:.1f} µs a record on the clock for {fetch.cpu_s * each:.1f} µs of CPU: "
        "the difference is waiting, for the broker or for a core.",
    )
    head = ("stage", "CPU µs a record", "of read_batch", "wall µs a record")
    return Section(TITLE, intro, (Grid(head, rows),), notes)


def _schema() -> StructType:
    """The columns without a JVM, which alone parses DDL."""
    columns = (column.split() for column in COLUMNS.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


def _splits(source: KafkaSource, batch: int) -> Iterator[Split]:
    here, end = source.initial_offsets(), source.end_offsets()
    while not source.reached(here, end):
        there = source.latest_offsets(here, batch, end)
        yield from source.plan_batches(here, there, CORES)
        here = there


def _fetch(source: KafkaSource, splits: list[Split], values: list[bytes | None]) -> None:
    for split in splits:
        assert isinstance(split, KafkaSplit)
        with CACHE.borrow(consumer_settings(source.options)) as consumer:
            reader = RangeReader(consumer, split.ranges, source.options)
            for messages in reader.chunks(source.options["max.poll.records"]):
                values.extend(message.value() for message in messages)


def _timed(work: Callable[[], object]) -> Spent:
    """CPU time counts all threads, librdkafka's among them."""
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return Spent(time.monotonic() - wall, time.process_time() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hotspots", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=250_000, help="the most records in a micro-batch")
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.partitions, given.batch).show(Console())


if __name__ == "__main__":
    main()
