"""In a task: the greatest event time of each partition that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forebay.connectors.contract import Segment, SourceBatch, Split
from forebay.source.watermarks import Place

EVENT_TIMES = "event_times"  # in a task's account


def segments_of(batch: SourceBatch, split: Split) -> Sequence[Segment]:
    """Which rows are of which partition, in order. All are of one where the split reads only that."""
    if batch.segments:
        return batch.segments
    places = {(topic, number) for topic, number, _, _ in split.spans()}
    return [Segment(place, 0, batch.records.num_rows) for place in places] if len(places) == 1 else ()


class NewestTimes:
    """Of one split. Without an event time column there is nothing to find."""

    def __init__(self, split: Split, column: str | None) -> None:
        self._split = split
        self._column = column
        self._found: dict[Place, int] = {}

    def see(self, batch: SourceBatch) -> None:
        """All good rows, before any view leaves some out: event time goes on for a view that wants few of them, too."""
        if self._column is None:
            return
        times = batch.records.column(self._column)
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("us"))
        micros = times.cast(pa.int64())
        for place, start, end in segments_of(batch, self._split):
            newest = pc.max(micros.slice(start, end - start)).as_py()
            if newest is not None:
                self._found[place] = max(newest, self._found.get(place, newest))

    def to_form(self) -> dict[str, Any]:
        return {EVENT_TIMES: [[*place, at] for place, at in self._found.items()]}


def from_form(form: Mapping[str, Any]) -> dict[Place, int]:
    """In microseconds, by partition."""
    return {(topic, number): at for topic, number, at in form.get(EVENT_TIMES, ())}
