"""In the process that plans a source: its watermark, decided at every look at the brokers.

The driver writes down the greatest event times that tasks have found (`watermarks.remember`); what is decided here goes into
the position that Spark logs, or to the control stream (`source/control.py`), and into a file for those who look.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from forebay.connectors.alignment import Alignment
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.files import FollowedFile
from forebay.source.watermarks import (
    WATERMARK,
    Bounds,
    Decision,
    Marks,
    Place,
    decide,
    event_times,
    without_marks,
)

PACE_S = 0.5  # so often the file is written at most
PACE_SHARE = (
    0.02  # the longer all partitions are idle, the less often: closing windows of long ago is not urgent
)
HURRIES = 2  # batches that follow a change of the watermark alone: the one that moves it, and the one that closes windows


@dataclass(frozen=True)
class WatermarkSettings:
    """Of one reader of a source: what bounds event time, and where the two files are."""

    delay_ms: int
    idle_ms: int
    drift_ms: int | None
    event_times: str
    decision: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> WatermarkSettings:
        return WatermarkSettings(**json.loads(text))


class WatermarkPlanner:
    """Of one reader of a source."""

    def __init__(self, settings: WatermarkSettings) -> None:
        self._settings = settings
        self._bounds = Bounds(settings.delay_ms, settings.idle_ms)
        self._decision = Decision()
        self._written = Decision()
        self._written_at = -PACE_S
        self._hurries = 0
        # What the driver has written down.
        self._event_times = FollowedFile[dict[Place, int]](Path(settings.event_times), event_times, {})

    def before_look(self, connector: SourceConnector) -> None:
        """No partition is read too far ahead of the slowest one."""
        drift_ms = self._settings.drift_ms
        if drift_ms is not None:
            connector.align(Alignment(drift_ms, self._settings.idle_ms, self._event_times.read()))

    def look(self, connector: SourceConnector, start: Offsets) -> Marks:
        """The marks for a batch that begins at `start`, after a look at what there is to read."""
        before = [at for at in (start.get(WATERMARK), self._decision.watermark_ms) if at is not None]
        silence = connector.silence()
        found = decide(self._event_times.read(), silence, self._bounds, max(before, default=None))
        self._decision = replace(found, position=without_marks(start))
        quiet_s = min((each or 0.0 for each in silence.values()), default=0.0)
        self._write(max(PACE_S, PACE_SHARE * quiet_s))
        return Marks(found.watermark_ms, found.own())

    def _write(self, pace_s: float) -> None:
        if self._decision == self._written or time.monotonic() - self._written_at < pace_s:
            return
        self._decision.write(Path(self._settings.decision))
        if self._decision.watermark_ms != self._written.watermark_ms:
            self._hurries = HURRIES
        self._written, self._written_at = self._decision, time.monotonic()

    def hurry(self) -> bool:
        """Whether Spark should not be kept waiting, though there may be nothing to read."""
        self._hurries -= 1
        return self._hurries >= 0

    @property
    def announced_ms(self) -> int | None:
        """The watermark as of when it was last written down: it moves at a pace that batches can follow."""
        return self._written.watermark_ms

    @property
    def news(self) -> bool:
        """Whether a watermark was written that no batch knows of yet."""
        return self._hurries == HURRIES
