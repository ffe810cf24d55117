"""Partitions of a source that are to stay together in event time: what is wanted, and whom that holds back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

NAMED = 5  # partitions in a sentence


@dataclass(frozen=True)
class Alignment:
    """No partition may be further ahead of the slowest active one than the drift."""

    drift_ms: int
    idle_ms: int  # after this silence a partition that is read to its end is not waited for
    newest_us: Mapping[tuple[str, int], int]  # the greatest event time that was read of each


@dataclass(frozen=True)
class HeldBack:
    """The partitions of which alignment left out records that there are."""

    ahead: tuple[tuple[str, int], ...] = ()  # in event time
    waits_for: tuple[str, int] | None = None  # the slowest active one
    unmeasured: tuple[tuple[str, int], ...] = ()  # nobody knows yet how fast event time goes in these

    def __bool__(self) -> bool:
        return bool(self.ahead or self.unmeasured)

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that are ahead."""
        return tuple(f"{topic}-{number}" for topic, number in self.ahead)

    def __str__(self) -> str:
        if not self.ahead:
            return f"aligned: how fast event time goes is measured first in {_listed(self.unmeasured)}"
        slowest = (
            "" if self.waits_for is None else f", not to be too far ahead of {_listed([self.waits_for])}"
        )
        return f"aligned: less is read of {_listed(self.ahead)}{slowest}"


def _listed(places: Collection[tuple[str, int]]) -> str:
    names = [f"{topic}-{number}" for topic, number in places]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
