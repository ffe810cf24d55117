"""A source that makes its rows up: for examples, tests and load, like Flink's.

Row n of a source is a function of the seed and n, so a batch that is repeated has the same rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay import column_types as types
from forebay.connectors.contract import (
    ConnectorInfo,
    ConnectorMetrics,
    ConnectorState,
    Discovered,
    HealthStatus,
    Offsets,
    PartitionLag,
    SourceBatch,
    SourceCheckpoint,
    SourceConfig,
    SourceConnector,
    Split,
)
from forebay.errors import ConnectorStateError, OptionValueError, UnsupportedSqlError
from forebay.formats.arrow_batches import readable
from forebay.options import TEXT, Option, OptionTable, PassThrough, fraction, integer

BLOCK = 1024  # rows are made a block at a time, each block from a generator of its own
BIG_SPLIT = 250_000
FIELD_KEYS = ("kind", "min", "max", "start", "end", "length", "choices", "null.rate")

DATAGEN = OptionTable(
    title="a datagen source",
    options=(
        Option("rows.per.second", integer(1), "how many rows appear each second", "10000", "500"),
        Option("number.of.rows", integer(0), "how many rows there are in all; without it there is no end"),
        Option("seed", integer(0), "another seed, other rows", "0", "7"),
        Option("max.records.per.batch", integer(1), "the most rows in one micro-batch", "500000", "10000"),
        Option("event.time.column", TEXT, "the column that carries event time", example="ts"),
        Option("watermark.max.out.of.orderness.ms", integer(0), "how late a row may be", "5000", "0"),
    ),
    pass_through=PassThrough(
        prefix="fields.", denied={}, secret=re.compile(r"(?!)"), check=lambda key, value: None
    ),
)


@dataclass(frozen=True)
class DatagenSplit(Split):
    """Rows [start, end), of a source whose first row was made at `epoch_ms`."""

    start: int = 0
    end: int = 0
    epoch_ms: int = 0

    def spans(self) -> Sequence[tuple[str, int, int, int]]:
        return [("datagen", 0, self.start, self.end)]


class DatagenSource(SourceConnector):
    """Rows from nowhere."""

    table = DATAGEN

    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._rate: int = self.options["rows.per.second"]
        self._total: int | None = self.options["number.of.rows"]
        self._base: tuple[int, float] | None = None  # a row, and when it was the newest
        self._end: Offsets | None = None
        self._committed: SourceCheckpoint | None = None
        self._made = 0
        self._check_field_options()
        self._columns = [self._column(field) for field in config.schema]

    @classmethod
    def info(cls) -> ConnectorInfo:
        return ConnectorInfo("datagen", "Rows that are made up", DATAGEN.options, ())

    def full_schema(self) -> pa.Schema:
        return self.config.schema

    def open(self) -> None:
        if self._state is ConnectorState.STOPPED:
            raise ConnectorStateError(f"source '{self.config.name}' is closed")
        if not len(self.config.schema):
            raise UnsupportedSqlError(
                "a datagen source needs its columns", remedy="CREATE SOURCE t (id BIGINT, …) FROM DATAGEN ()"
            )
        self._state = ConnectorState.RUNNING

    def close(self) -> None:
        self._state = ConnectorState.STOPPED

    def discover_schema(self) -> Discovered | None:
        return None

    def initial_offsets(self) -> Offsets:
        return {"row": 0, "epoch_ms": int(time.time() * 1000)}

    def latest_offsets(
        self, start: Offsets, max_records: int | None, until: Offsets | None = None
    ) -> Offsets:
        row = self._newest(start["row"])
        self._end = {**start, "row": max(row, start["row"])}
        if until is not None:
            row = min(row, until["row"])
        if max_records is not None:
            row = min(row, start["row"] + max_records)
        return {**start, "row": max(row, start["row"])}

    def _newest(self, start: int) -> int:
        # Counted from the moment this process first looked: a source that was stopped for a night
        # does not come back with a night's rows.
        if self._base is None:
            self._base = (start, time.monotonic())
        row, since = self._base
        newest = row + int((time.monotonic() - since) * self._rate)
        return newest if self._total is None else min(newest, self._total)

    def known_end(self) -> Offsets | None:
        return self._end

    def end_offsets(self) -> Offsets:
        """All rows, where their number is given: a caller that waits for the end waits for those."""
        row = self._total if self._total is not None else self._newest(0)
        return {"row": row, "epoch_ms": 0}

    def reached(self, position: Offsets, target: Offsets) -> bool:
        return bool(position["row"] >= target["row"])

    def count(self, start: Offsets, end: Offsets) -> int:
        return int(end["row"]) - int(start["row"])

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        first, last = start["row"], end["row"]
        # The end's epoch: it is in the log, while a first batch that is repeated gets another start.
        epoch_ms = end["epoch_ms"] or start["epoch_ms"]
        parts = min(parallelism, -(-(last - first) // BIG_SPLIT)) or 1
        edges = [first + (last - first) * part // parts for part in range(parts + 1)]
        return [DatagenSplit(low, high, epoch_ms) for low, high in pairwise(edges) if high > low]

    def read_batch(self, split: Split) -> Iterator[SourceBatch]:
        assert isinstance(split, DatagenSplit)
        schema = readable(self.config.schema)
        for block in range(split.start // BLOCK, -(-split.end // BLOCK)):
            low, high = max(split.start, block * BLOCK), min(split.end, (block + 1) * BLOCK)
            random = np.random.default_rng([self.options["seed"], block])
            rows = np.arange(block * BLOCK, (block + 1) * BLOCK)
            arrays = [
                column(rows, random, split.epoch_ms, field.type).slice(low - block * BLOCK, high - low)
                for column, field in zip(self._columns, schema, strict=True)
            ]
            self._made += high - low
            made = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield SourceBatch(made, bytes=made.nbytes)

    def commit_offsets(self, checkpoint: SourceCheckpoint) -> None:
        self._committed = checkpoint

    def current_offsets(self) -> SourceCheckpoint | None:
        return self._committed

    def lag(self) -> list[PartitionLag]:
        committed = self._committed.offsets["row"] if self._committed else None
        end = self._end["row"] if self._end else committed or 0
        return [PartitionLag(self.config.name, 0, committed, end, end - (committed or 0))]

    def health_check(self) -> HealthStatus:
        return HealthStatus(self._state is ConnectorState.RUNNING, f"{self._rate} rows a second")

    def metrics(self) -> ConnectorMetrics:
        return ConnectorMetrics(records_total=self._made)

    # -- columns -------------------------------------------------------------------------------------

    def _check_field_options(self) -> None:
        names = {field.name for field in self.config.schema}
        for key in self.options.passed_through():
            column, _, setting = key.partition(".")
            if column not in names or setting not in FIELD_KEYS:
                wrong = f"column '{column}'" if column not in names else f"setting '{setting}'"
                known = sorted(names) if column not in names else FIELD_KEYS
                raise OptionValueError(
                    f"'fields.{key}': there is no {wrong}",
                    option=f"fields.{key}",
                    remedy="there are: " + ", ".join(known),
                )

    def _column(self, field: pa.Field) -> Callable[..., pa.Array]:
        prefix = f"{field.name}."
        given = {
            key[len(prefix) :]: text
            for key, text in self.options.passed_through().items()
            if key.startswith(prefix)
        }
        try:
            make = _maker(field.type, given, self._rate)
            null_rate = fraction().parse(given.get("null.rate", "0"))
            if null_rate and not field.nullable:
                raise ValueError("null.rate, but the column is NOT NULL")
        except (ValueError, ArithmeticError) as error:
            raise OptionValueError(
                f"the settings of column '{field.name}' do not fit its type: {error}",
                option=f"fields.{field.name}.{next(iter(given), 'kind')}",
            ) from None

        def column(rows: Any, random: Any, epoch_ms: int, kind: pa.DataType) -> pa.Array:
            values = make(rows, random, epoch_ms)
            array = (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)
            if null_rate:
                array = pc.if_else(pa.array(random.random(len(rows)) < null_rate), None, array)
            return array

        return column


def _maker(kind: pa.DataType, given: Mapping[str, str], rate: int) -> Callable[[Any, Any, int], Any]:
    """A function (row numbers, random numbers, epoch) → values of this type."""
    if "choices" in given:
        _only(given, "choices")
        values = _choices(kind, [word.strip() for word in given["choices"].split(",")])
        return lambda rows, random, _: random.choice(values, len(rows)).tolist()
    if given.get("kind", "random") == "sequence" or "start" in given:
        _only(given, "start", "end")
        return _sequence(kind, given)
    if given.get("kind", "random") != "random":
        raise ValueError(f"kind is random or sequence, not {given['kind']!r}")
    return _random(kind, given, rate)


def _only(given: Mapping[str, str], *settings: str) -> None:
    """A setting that has no meaning here is an error: ignored, it would seem to work."""
    for key in given:
        if key not in (*settings, "kind", "null.rate"):
            raise ValueError(f"'{key}' has no meaning here, there are: " + (", ".join(settings) or "none"))


def _choices(kind: pa.DataType, words: list[str]) -> Any:
    if not all(words):
        raise ValueError("a choice is empty")
    parse: Callable[[str], Any] = str
    if kind in types.BITS:
        parse = int
    elif kind in (types.FLOAT, types.DOUBLE):
        parse = float
    elif isinstance(kind, pa.Decimal128Type):
        parse = Decimal
    elif kind != types.STRING:
        raise ValueError(f"there are no choices of type {types.type_name(kind)}")
    values = [parse(word) for word in words]
    pa.array(values, kind)  # refuses what does not fit
    return np.array(values, dtype=object)


def _sequence(kind: pa.DataType, given: Mapping[str, str]) -> Callable[..., Any]:
    if kind not in types.BITS and kind not in (types.FLOAT, types.DOUBLE, types.STRING):
        raise ValueError(f"there is no sequence of type {types.type_name(kind)}")
    least, most = _span(kind)
    first, last = int(given.get("start", "0")), int(given.get("end", str(most)))
    if last < first:
        raise ValueError("end lies before start")
    if first < least or last > most:
        raise ValueError(f"it holds {least} to {most}")
    return lambda rows, *_: first + rows % (last - first + 1)


def _span(kind: pa.DataType) -> tuple[int, int]:
    """What a column of this type can count to; half of 64 bits, so that sums of two fit too."""
    bits = min(types.BITS.get(kind, 64), 63)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _random(kind: pa.DataType, given: Mapping[str, str], rate: int) -> Callable[[Any, Any, int], Any]:
    if kind in types.BITS:
        edge = 2 ** (min(types.BITS[kind], 32) - 1) - 1
        _only(given, "min", "max")
        low, high = int(given.get("min", "0")), int(given.get("max", str(edge)))
        whole = 2 ** (types.BITS[kind] - 1)
        _check_bounds(low, high, -whole, whole - 1)
        return lambda rows, random, _: random.integers(low, high, len(rows), endpoint=True)
    if kind in (types.FLOAT, types.DOUBLE):
        _only(given, "min", "max")
        least, most = float(given.get("min", "0")), float(given.get("max", "1"))
        _check_bounds(least, most, -3e38, 3e38)
        return lambda rows, random, _: random.uniform(least, most, len(rows))
    if isinstance(kind, pa.Decimal128Type):
        unit = 10**kind.scale
        _only(given, "min", "max")
        floor, ceiling = (int(Decimal(given.get(k, d)) * unit) for k, d in (("min", "0"), ("max", "1")))
        edge = min(10**kind.precision - 1, 2**62)
        _check_bounds(floor, ceiling, -edge, edge)
        places = pa.decimal128(kind.precision, kind.scale)
        return lambda rows, random, _: _decimals(
            random.integers(floor, ceiling, len(rows), endpoint=True), unit, places
        )
    if kind == types.STRING:
        _only(given, "length")
        length = integer(0, 1_000_000).parse(given.get("length", "12"))
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        return lambda rows, random, _: ["".join(word) for word in random.choice(letters, (len(rows), length))]
    _only(given)
    if kind == types.BOOLEAN:
        return lambda rows, random, _: random.random(len(rows)) < 0.5
    if kind in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        zone = "UTC" if kind == types.TIMESTAMP else None
        stamp = pa.timestamp("us", zone)
        return lambda rows, _, epoch: pa.array(epoch * 1000 + rows * 1_000_000 // rate).cast(stamp)
    if kind == types.DATE:
        return lambda rows, _, epoch: pa.array((epoch // 86_400_000 + rows * 0).astype("int32")).cast(
            pa.date32()
        )
    raise ValueError(f"no values of type {types.type_name(kind)} can be made up")


def _check_bounds(low: float, high: float, least: float, most: float) -> None:
    if not least <= low <= high <= most:
        raise ValueError("min and max are out of order, or out of the type's range")


def _decimals(values: Any, unit: int, kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(int(value)) / unit for value in values]).cast(kind)
