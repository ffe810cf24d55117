"""The last hour of a source, as charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.web.model import HistoryPoint, SourcePage
from forebay.web.pages import parts
from forebay.web.pages.charts import Lines, in_bytes

LINES: Final = 8  # partitions


class SourceCharts:
    """Made where they stand on the page."""

    def __init__(self, name: str) -> None:
        hour = "the last hour"
        with parts.box("cols"):
            with parts.panel("Records a second", note=hour):
                self._rates = Lines(f"Records a second of {name}", small=True)
            with parts.panel("Bytes a second", note=hour):
                self._sizes = Lines(f"Bytes a second of {name}", "B/s", small=True)
            with parts.panel("Seconds behind", note=hour):
                self._behind = Lines(f"Seconds behind of {name}", "s", small=True)
            with parts.panel("Records behind", note=hour):
                self._lags = Lines(f"Records behind of {name}", small=True)
            with parts.panel("Batch duration", note="p50 and p99 of a minute's batches, the last hour"):
                self._batches = Lines(f"Batch duration of {name}", "ms", small=True)
            with parts.panel("Errors by kind", note=hour):
                self._errors = Lines(f"Errors by kind of {name}", stacked=True, small=True)
                self._no_errors = parts.text("No record was refused.", "muted small")
        note = f"{hour}, the {LINES} furthest behind"
        with parts.panel("Records behind by partition", note=note) as self._by_partition:
            self._partitions = Lines(f"Records behind by partition of {name}", small=True)

    def show(self, points: Sequence[HistoryPoint], page: SourcePage) -> None:
        self._rates.show({"records/s": [(point.at_ms, point.records_per_s) for point in points]})
        unit, sizes = in_bytes([(point.at_ms, point.bytes_per_s) for point in points])
        self._sizes.show({f"{unit}/s": sizes}, unit=f"{unit}/s")
        self._behind.show({"seconds": [(point.at_ms, point.lag_s) for point in points]})
        self._lags.show({"records": [(point.at_ms, point.lag) for point in points]})
        took = [point for point in points if point.batch_ms_p50 is not None]
        self._batches.show(
            {
                "p50": [(point.at_ms, point.batch_ms_p50) for point in took],
                "p99": [(point.at_ms, point.batch_ms_p99) for point in took],
            }
        )
        kinds = dict.fromkeys(kind for point in points for kind in point.errors)
        self._errors.show(
            {kind: [(point.at_ms, point.errors.get(kind, 0)) for point in points] for kind in kinds}
        )
        self._no_errors.set_visibility(not page.errors_by_kind)
        self._partitions.show(by_partition(points))
        # Of one partition it is the chart above.
        self._by_partition.set_visibility(len(page.partitions) > 1)


def by_partition(points: Sequence[HistoryPoint]) -> dict[str, list[tuple[float, float | None]]]:
    """A line a partition, of those that were furthest behind; the furthest first."""
    worst: dict[str, int] = {}
    for point in points:
        for name, lag in point.partitions.items():
            worst[name] = max(lag, worst.get(name, 0))
    names = sorted(worst, key=lambda name: (-worst[name], name))[:LINES]
    looked = [point for point in points if point.partitions]
    return {name: [(point.at_ms, point.partitions.get(name)) for point in looked] for name in names}
