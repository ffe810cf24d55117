"""What Spark says of its streaming queries, taken in two calls an event.

PySpark's own listener makes Python objects of an event, field by field, in some 300 ms: a session could not hear of
more than three batches a second. Here the event crosses as one text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQuery

from forebay.connectors.contract import Offsets
from forebay.source.watermarks import CONTROL


@dataclass(frozen=True)
class SourceReport:
    """How one source of a query moved in a batch."""

    end: Offsets | None
    latest: Offsets | None  # where the source ended when it was last looked at
    moved: bool


@dataclass(frozen=True)
class BatchReport:
    """Spark's report of a batch that is in the checkpoint."""

    batch: int
    took_ms: int
    late: int  # rows that came too late, of the whole query
    sources: tuple[SourceReport, ...]
    watermark_ms: int | None = None  # by which it has closed windows


def read_report(text: str) -> BatchReport:
    """From the JSON of a StreamingQueryProgress."""
    form = json.loads(text)
    return BatchReport(
        form["batchId"],
        # Spark measures it by the wall clock, which may have been set back meanwhile.
        max(0, form.get("durationMs", {}).get("triggerExecution", 0)),
        sum(each.get("numRowsDroppedByWatermark", 0) for each in form.get("stateOperators", ())),
        tuple(
            SourceReport(
                _offsets(each.get("endOffset")),
                _offsets(each.get("latestOffset")),
                each.get("startOffset") != each.get("endOffset"),
            )
            for each in form.get("sources", ())
            if CONTROL not in (_offsets(each.get("endOffset")) or {})
        ),
        _millis(form.get("eventTime", {}).get("watermark")),
    )


def _millis(time: str | None) -> int | None:
    return None if time is None else round(datetime.fromisoformat(time).timestamp() * 1000)


def _offsets(found: Any) -> Offsets | None:
    """Where there is none, Spark says so in more than one way."""
    return found if isinstance(found, dict) else None


def recent_reports(query: StreamingQuery, after: int) -> list[BatchReport]:
    """The batches past `after` of which the query itself still has reports, oldest first. No queue is in between.

    It keeps a hundred, those of an idle query among them, which have the number of a batch that is still to come.
    """
    kept = query._jsq.recentProgress()
    found: list[BatchReport] = []
    for index in reversed(range(len(kept))):
        each = kept[index]
        if each.batchId() <= after:
            break
        if each.durationMs().containsKey("addBatch"):
            found.append(read_report(each.json()))
    return found[::-1]


def failure(query: StreamingQuery) -> str | None:
    """Why a query that is not active any more ended; None if nothing went wrong."""
    found = query._jsq.exception()
    return None if found.isEmpty() else str(found.get().cause().toString())


class Events:
    """A listener for `spark.streams.addListener`: hears of progress and of ends, by the query's run.

    What it calls must not wait: Spark's events do.
    """

    def __init__(
        self,
        on_progress: Callable[[str, BatchReport], None],
        on_terminated: Callable[[str, str | None], None],
    ) -> None:
        self._on_progress = on_progress
        self._on_terminated = on_terminated
        self._java: Any = None

    @property
    def _jlistener(self) -> Any:
        """What PySpark registers: in place of its own, which converts every field of an event."""
        if self._java is None:
            jvm = SparkContext._jvm
            assert jvm is not None
            self._java = jvm.PythonStreamingQueryListenerWrapper(
                _JavaListener(self._on_progress, self._on_terminated)
            )
        return self._java


class _JavaListener:
    def __init__(
        self,
        on_progress: Callable[[str, BatchReport], None],
        on_terminated: Callable[[str, str | None], None],
    ) -> None:
        self._on_progress = on_progress
        self._on_terminated = on_terminated

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        text = event.progress().json()
        self._on_progress(json.loads(text)["runId"], read_report(text))

    def onQueryTerminated(self, event: Any) -> None:
        reason = event.exception()
        self._on_terminated(event.runId().toString(), None if reason.isEmpty() else reason.get())

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
