"""The watermarks of a home's sources, as the processes that plan have decided them last: for those who look."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from forebay.runtime.read_paths import of_source, of_view
from forebay.source.watermarks import Decision, PartitionMark
from forebay.views.paths import paths_of


def decisions(home: Path, source: str, views: Iterable[str]) -> dict[str, Decision]:
    """By who reads: "one read" for many views, or a view that reads by itself."""
    files = {"one read": of_source(home, source).watermark}
    for view in views:
        paths = paths_of(home, view)
        alone = of_view(paths).watermark
        files[f"view {view}"] = alone if alone.exists() else paths.watermark_of(source)
    found = {reader: Decision.read(path) for reader, path in files.items()}
    return {reader: each for reader, each in found.items() if each is not None}


def slowest(found: Iterable[Decision]) -> Decision | None:
    """The one whose watermark is lowest: one that has none yet comes first."""
    return min(found, key=lambda each: (each.watermark_ms is not None, each.watermark_ms or 0), default=None)


def described(found: dict[str, Decision]) -> list[str]:
    """The lines of DESCRIBE EXTENDED."""
    lines = []
    for reader, decision in found.items():
        held = decision.held_by
        why = f", held back by {held.topic}-{held.partition}" if held else ", all partitions are idle"
        lines += [
            "",
            f"Watermark of {reader}: {_time(decision.watermark_ms)}{why if decision.partitions else ''}",
        ]
        lines += [
            f"  watermark.{each.topic}.{each.partition}: {_time(each.mark_ms)}{_state(each)}"
            for each in decision.partitions
        ]
    return lines


def _state(mark: PartitionMark) -> str:
    if mark.idle:
        return " (idle)" if mark.mark_ms is not None else " (read to the end, had no event time yet)"
    return " (has unread records)" if mark.unread else ""


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "none yet"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")
