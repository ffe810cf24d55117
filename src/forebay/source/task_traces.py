"""In a task: which records carry a trace that their producer keeps, for the driver to make spans of.

A few of a task, so that what it costs does not grow with the batch; good and bad ones apart, so that many good ones do not
hide the one that is bad.
"""

from __future__ import annotations

from typing import Any

from forebay.connectors.contract import SourceBatch, TracedRecord

MOST = 16  # of each: enough to find one, few enough that a batch of any size has some dozens of spans


class TaskTraces:
    """What one task saw. With `most` = 0 nobody looks, and nothing is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._good: dict[tuple[str, int, int], TracedRecord] = {}
        self._bad: dict[tuple[str, int, int], TracedRecord] = {}

    def see(self, batch: SourceBatch) -> None:
        for each in batch.traced:
            found = self._bad if each.kind else self._good
            if len(found) < self._most:
                found[each.topic, each.partition, each.offset] = each
        if self._good and batch.rejected:
            # A record that decoded may be refused later, for its event time.
            for bad in batch.rejected:
                known = self._good.pop((bad.topic, bad.partition, bad.offset), None)
                if known is not None:
                    self._bad[known.topic, known.partition, known.offset] = known._replace(kind=bad.kind)

    def to_form(self) -> dict[str, Any]:
        """For the driver, as JSON."""
        found = [*self._good.values(), *self._bad.values()]
        return {"traced": [list(each) for each in found]} if found else {}
