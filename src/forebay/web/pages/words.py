"""Numbers, ages and states as a person reads them."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

UNKNOWN = "–"

# A state's colour. What is not here is grey.
_TONES = {
    "running": "good", "healthy": "good", "done": "good", "in_view": "good", "idle": "good", "live": "good", "ok": "good",
    "paused": "hold", "discarded": "hold", "stopped": "warn", "stopping": "warn", "waiting": "info", "sent": "info",
    "replayed": "info", "starting": "info", "created": "info", "open": "warn", "degraded": "warn", "catching up": "warn", "lagging": "warn",
    "failed": "bad", "failed_again": "bad", "stalled": "bad", "error": "bad", "refused": "bad", "unreachable": "bad", "unhealthy": "bad",
}  # fmt: skip

_SAID = {"failed_again": "failed again", "in_view": "in the view", "dead_letter": "dead letter"}


def tone(state: str | None) -> str:
    """The class of a state's colour."""
    return _TONES.get((state or "").lower(), "")


def said(state: str | None) -> str:
    """A state in words."""
    return _SAID.get(state or "", (state or "").replace("_", " ")) or UNKNOWN


def count(number: float | None) -> str:
    """A whole number with separators."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """A number that has to fit: 950, 12.3 K, 4.1 M."""
    if number is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "K")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'K' else size):,.1f} {unit}"
    return f"{number:,.0f}"


def rate(number: float | None) -> str:
    """Records a second."""
    if number is None:
        return UNKNOWN
    return f"{number:.1f}/s" if 0 < number < 10 else f"{short(number)}/s"


def size(number: float | None) -> str:
    """Bytes."""
    if number is None:
        return UNKNOWN
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def span(seconds: float | None) -> str:
    """A duration: 0.4 s, 12 s, 3 min 20 s, 5 h 10 min."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        seconds = 0
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def millis(number: int | None) -> str:
    """How long a batch took."""
    return UNKNOWN if number is None else f"{number:,} ms"


def ago(at_ms: int | None) -> str:
    """How long ago a time was."""
    return UNKNOWN if at_ms is None else f"{span(max(0.0, time.time() - at_ms / 1000))} ago"


def utc(at_ms: int | None) -> str:
    """A time, to the second."""
    return UNKNOWN if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def many(number: int, one: str, several: str | None = None) -> str:
    """`1 letter`, `1,204 letters`."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def plain(value: Any) -> str:
    """A value of a row as text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def link(path: str, **query: str) -> str:
    """An address of a page. A name may hold anything, so it goes into the query, quoted."""
    asked = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
    return f"{path}?{asked}" if asked else path
