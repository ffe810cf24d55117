"""Event times of decoded rows: the newest, and those that are too far in the future to be believed.

One record with a wrong clock would move a watermark ahead of all others, and every row behind it would be late. So a
record beyond a limit is refused before its rows are handed on. The limit is fixed when a batch is planned, and is part of
the offset that Spark logs: a batch that is repeated refuses the same records, whatever the clock says by then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.connectors.contract import Offsets, SourceConfig
from forebay.options import Options

if TYPE_CHECKING:  # commands that look at a home need no Arrow
    import pyarrow as pa

MAX_FUTURE = "watermark.max.future.ms"
NOW = "now"  # in a planned offset: when it was planned, in milliseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LatestTime(NamedTuple):
    """The latest event time that a record may have, and how far that was ahead of the clock."""

    column: str
    us: int
    ahead_ms: int

    def reason(self, at_us: int | None) -> str:
        """Why a record of this time is refused. The message begins with its column, as a decoder's does."""
        return (
            f"{self.column}: event time {time_text(at_us)} is beyond {time_text(self.us)}, which is "
            f"{self.ahead_ms} ms ('{MAX_FUTURE}') ahead of the clock"
        )


def latest_time(config: SourceConfig, options: Options, now_ms: int) -> LatestTime | None:
    """Of a batch that is planned now. None where the source has no event time, or believes any."""
    ahead = options.get(MAX_FUTURE)
    if config.event_time is None or not ahead:
        return None
    return LatestTime(config.event_time, (now_ms + ahead) * 1000, ahead)


def latest_of(config: SourceConfig, options: Options, end: Offsets, now_ms: int) -> LatestTime | None:
    """Of a batch that was planned up to `end`, by this version or by one that did not say when."""
    return latest_time(config, options, end.get(NOW, now_ms))


def micros(times: pa.Array) -> pa.Array:
    """Microseconds of the epoch. A DATE is its midnight; a time without a zone is taken as UTC."""
    import pyarrow as pa

    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us"))
    return times.cast(pa.int64())


def newest_us(times: pa.Array) -> int | None:
    """The newest of them; None where all are NULL."""
    import pyarrow.compute as pc

    found: int | None = pc.max(micros(times)).as_py()
    return found


def beyond(rows: pa.RecordBatch, latest: LatestTime) -> Any:
    """Which rows are later than that: a mask without NULLs, or None where none is, as nearly always."""
    import pyarrow.compute as pc

    times = rows.column(latest.column)
    newest = newest_us(times)
    if newest is None or newest <= latest.us:
        return None
    return pc.fill_null(pc.greater(micros(times), latest.us), False)


def time_text(at_us: int | None) -> str:
    """For people, in UTC. A year that no calendar of ours has is shown as the number it is."""
    if at_us is None:
        return "NULL"
    try:
        moment = _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return f"{at_us} µs"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
