"""What a record costs on its way from the broker into Arrow columns: fetching, decoding, and both at once.

In one process without Spark. Each part runs by itself over the same records; the Python reference, which
takes the native reader's place where that is not built, beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from rich.console import Console

from benchmarks.records import values
from benchmarks.report import Grid, Section
from benchmarks.shapes import COLUMNS, avro_schema
from benchmarks.topics import fill
from forebay import column_types as types
from forebay.connectors.contract import SourceConfig
from forebay.devstack import DevStack
from forebay.kafka.connector import KafkaSource
from forebay.kafka.rows import RowDecoder
from forebay.native import native

PARTITIONS = 4
CHUNK = 10_000
BOUNDS = {"json": 1.0, "avro": 0.5}  # µs, as the specification has it
TITLE = "What a record costs before Spark sees it"
_TYPES: dict[str, pa.DataType] = {
    "long": types.BIGINT,
    "int": types.INT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "time": types.TIMESTAMP,
}
RAW = pa.schema([pa.field("value", types.BINARY)])


def measure(console: Console, records: int = 1_000_000) -> Section:
    rows, notes = [], []
    with DevStack() as stack:
        for form, bound in BOUNDS.items():
            console.print(f"{records:,} {form} records in one process, part by part")
            payloads = list(values(form, "medium", records))
            fill(stack.bootstrap_servers, form, payloads, records, PARTITIONS)
            decode, parts = 0.0, _parts(stack.bootstrap_servers, form, payloads)
            for name, work in parts:
                cpu, wall = _timed(work, records)
                rows.append((form, name, f"{cpu:.2f}", f"{wall:.2f}"))
                decode = cpu if name.startswith("decode") else decode
            verdict = "holds" if decode <= bound else "**does not hold**"
            notes.append(f"{form}: {decode:.2f} µs to decode a record; at most {bound} µs {verdict}.")
    intro = (
        f"{records:,} records of about 120 bytes as JSON, from {PARTITIONS} partitions, lz4; one process, no Spark. "
        "CPU time is that of the process with all its threads, the broker's is not in it."
    )
    head = ("format", "part", "CPU µs a record", "wall µs a record")
    return Section(TITLE, intro, (Grid(head, tuple(rows)),), tuple(notes))


def _parts(servers: str, form: str, payloads: list[bytes]) -> Iterator[tuple[str, Callable[[], int]]]:
    schema = trade_columns("medium")
    avro = {"avro.schema": avro_schema("medium")} if form == "avro" else {}
    source = _source(servers, form, schema, form, avro)
    rows = RowDecoder(schema, source.options)
    module = native()
    if module is not None:
        yield "fetch and unpack, natively", lambda: _read(_source(servers, form, RAW, "raw", {}))
        decoder = module.Decoder(*rows.values)
        chunks = [payloads[start : start + CHUNK] for start in range(0, len(payloads), CHUNK)]
        yield "decode, natively", lambda: sum(len(chunk) - len(decoder.decode(chunk).bad) for chunk in chunks)
        yield "both at once, natively", lambda: _read(source)
    yield "all of it by the Python reference", lambda: _read_plainly(source)


def trade_columns(size: str) -> pa.Schema:
    """The columns of the small and the medium records, as Spark has them."""
    return pa.schema([pa.field(name, _TYPES[str(kind)]) for name, kind in COLUMNS[size].items()])


def _source(servers: str, topic: str, schema: pa.Schema, form: str, more: dict[str, str]) -> KafkaSource:
    options = {"bootstrap.servers": servers, "topic": topic, "group.id": "decoding", "format": form}
    return KafkaSource(
        SourceConfig("decoding", "kafka", options | {"startup.mode": "earliest"} | more, schema)
    )


def _read(source: KafkaSource) -> int:
    splits = source.plan_batches(source.initial_offsets(), source.end_offsets(), 2)
    return sum(batch.records.num_rows for split in splits for batch in source.read_batch(split))


def _read_plainly(source: KafkaSource) -> int:
    with _without_native():
        return _read(source)


@contextmanager
def _without_native() -> Iterator[None]:
    os.environ["FOREBAY_NATIVE"] = "0"
    native.cache_clear()
    try:
        yield
    finally:
        del os.environ["FOREBAY_NATIVE"]
        native.cache_clear()


def _timed(work: Callable[[], int], records: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    if found != records:
        raise RuntimeError(f"{found} of {records} records")
    each = 1e6 / records
    return (time.process_time() - cpu) * each, (time.perf_counter() - wall) * each


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    measure(Console(stderr=True), parser.parse_args().records).show(Console())


if __name__ == "__main__":
    main()
