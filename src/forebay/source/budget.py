"""The budget in flight of a source: what its reads have planned to fetch and their tables do not have yet.

A batch is planned only if it fits below the high watermark, together with what all reads of the source have in flight.
At the high watermark nothing more is fetched until what is in flight is below the low one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forebay.options import Options

BYTES = 1 << 30
RECORDS = 8_000_000
HIGH, LOW = 0.8, 0.5


@dataclass(frozen=True)
class InFlight:
    """Records, and the bytes of their keys and values as far as one can tell before they are read."""

    records: int = 0
    bytes: int = 0

    @staticmethod
    def sum(parts: Iterable[InFlight]) -> InFlight:
        found = list(parts)
        return InFlight(sum(each.records for each in found), sum(each.bytes for each in found))


@dataclass(frozen=True)
class Budget:
    """Of one source, over all its reads."""

    records: int = RECORDS
    bytes: int = BYTES
    high: float = HIGH
    low: float = LOW

    @staticmethod
    def of(options: Options) -> Budget:
        """As the source's options say; of a connector that has none of them, the defaults."""
        return Budget(
            options.get("backpressure.budget.records") or RECORDS,
            options.get("backpressure.budget.bytes") or BYTES,
            HIGH if (high := options.get("backpressure.high.watermark")) is None else high,
            LOW if (low := options.get("backpressure.low.watermark")) is None else low,
        )

    def fill(self, others: InFlight) -> float:
        """How much of it is in flight; 1 is all."""
        return max(others.records / self.records, others.bytes / self.bytes)

    def stopped(self, others: InFlight, before: bool) -> bool:
        """Whether nothing may be fetched, given whether that was so before."""
        return self.fill(others) >= self.high or (before and self.fill(others) >= self.low)

    def room(self, others: InFlight, record_bytes: float) -> int:
        """How many records fit below the high watermark. One at least where nothing is in flight: it has to be read somehow."""
        records = self.high * self.records - others.records
        by_bytes = (self.high * self.bytes - others.bytes) / record_bytes if record_bytes > 0 else records
        return max(int(min(records, by_bytes)), 1 if others == InFlight() else 0)
