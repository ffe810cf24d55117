"""The query that every Spark peer runs: all that a topic holds, every column, in micro-batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.contract import Outcome, Task, timed
from benchmarks.peers.live import memory
from benchmarks.peers.sampling import MemorySampler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "trade_id BIGINT, symbol STRING, price DOUBLE, quantity INT, side STRING, venue STRING, "
    "event_time TIMESTAMP"
)


WARM_S, WARM_BATCHES = 15.0, 10  # of a live topic, before ages count


@dataclass
class Tally:
    """What the sink has seen so far."""

    records: int = 0
    checksum: int = 0
    batches: int = 0
    batch_s: float = 0.0

    def add(self, batch: DataFrame, _: int) -> None:
        """A hash over all columns: none can be pruned away, and a wrong value shows."""
        start = time.monotonic()
        columns = ", ".join(f"`{name}`" for name in batch.columns)
        row = batch.selectExpr("count(*) AS n", f"bit_xor(xxhash64({columns})) AS h").collect()[0]
        self.records += row["n"]
        self.checksum ^= row["h"] or 0
        self.batches += 1
        self.batch_s += time.monotonic() - start


def spark_settings(task: Task) -> dict[str, str]:
    """Set alike for all Spark peers; what is left out has Spark's default."""
    return {
        "spark.driver.memory": task.heap,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Xss16m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path(task.work) / "warehouse"),
    }


def measure_query(frame_of: Callable[[str], DataFrame], task: Task, version: str) -> Outcome:
    """Read the warm-up topic untimed, then the topic, timed. `frame_of(topic)` is a streaming frame."""
    if task.live_s is not None and task.warm_file:
        return _endure(frame_of(task.topic), task, version)
    if task.live_s is not None:
        return _watch(frame_of(task.topic), task.live_s, Path(task.work) / "live", version)
    _consume(frame_of(task.warmup_topic), Tally(), Path(task.work) / "warmup")
    tally = Tally()
    sampler = MemorySampler(task.sample_s, lambda: tally.records) if task.sample_s else None
    if sampler:
        sampler.start()
    with timed() as clock:
        _consume(frame_of(task.topic), tally, Path(task.work) / "measured")
    samples = sampler.stop() if sampler else ()
    checksum = f"{tally.checksum & (2**64 - 1):016x}"
    return Outcome(
        version, tally.records, checksum, tally.batches, clock.wall_s, tally.batch_s, clock.cpu, samples
    )


def _consume(frame: DataFrame, tally: Tally, checkpoint: Path) -> None:
    writer = frame.writeStream.trigger(availableNow=True).foreachBatch(tally.add)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def _watch(frame: DataFrame, seconds: float, checkpoint: Path, version: str) -> Outcome:
    """How old each record is when its batch is in the sink, which is this program."""
    ages: list[float] = []
    sizes: list[int] = []

    def see(batch: DataFrame, _: int) -> None:
        # As Arrow: a Python object for each row would be most of the work at fifty thousand a second.
        stamps = batch.selectExpr("unix_millis(event_time)").toArrow().column(0).to_numpy()
        now = time.time() * 1000
        ages.extend((now - stamps).tolist())
        sizes.append(len(stamps))

    query = frame.writeStream.foreachBatch(see).option("checkpointLocation", str(checkpoint)).start()
    began = time.monotonic()
    # The first batches compile, start workers, and have a backlog to read.
    while time.monotonic() - began < WARM_S or len(sizes) < WARM_BATCHES:
        if query.awaitTermination(1) or time.monotonic() - began > 10 * WARM_S:
            raise RuntimeError(f"the query did not get going: {len(sizes)} batches")
    ages.clear()
    sizes.clear()
    with timed() as clock:
        query.awaitTermination(int(seconds))
        seen, batches = tuple(ages), len(sizes)
    query.stop()
    return Outcome(version, len(seen), "", batches, clock.wall_s, 0.0, clock.cpu, ages_ms=seen)


def _endure(frame: DataFrame, task: Task, version: str) -> Outcome:
    """Memory and batch times while others do to the topic what they do once this one is warm."""
    assert task.live_s is not None
    tally, ends = Tally(), list[float]()

    def see(batch: DataFrame, number: int) -> None:
        tally.add(batch, number)
        ends.append(time.monotonic())

    checkpoint = Path(task.work) / "live"
    query = frame.writeStream.foreachBatch(see).option("checkpointLocation", str(checkpoint)).start()
    began = time.monotonic()
    while time.monotonic() - began < WARM_S or len(ends) < WARM_BATCHES:
        if query.awaitTermination(1) or time.monotonic() - began > 10 * WARM_S:
            raise RuntimeError(f"the query did not get going: {len(ends)} batches")
    before, first, sizes = tally.records, len(ends), list[int]()
    Path(task.warm_file).touch()
    with timed() as clock:
        until = time.monotonic() + task.live_s
        while time.monotonic() < until:
            query.awaitTermination(1)
            sizes.append(sum(memory()))
    seen = [1000 * (end - start) for start, end in pairwise(ends[first - 1 :])]
    records, batches = tally.records - before, len(seen)
    query.stop()
    return Outcome(
        version, records, "", batches, clock.wall_s, 0.0, clock.cpu, batch_ms=tuple(seen), memory=tuple(sizes)
    )
