"""Places in a script: offsets on the inside, lines and columns for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forebay.errors import Position


@dataclass(frozen=True)
class Script:
    """The whole text the user wrote, which every position refers to."""

    text: str

    def position(self, start: int, end: int) -> Position:
        """The place of `text[start:end]`; its length stops at the end of the first line."""
        # Lines are counted as errors.py draws them: by str.splitlines, not by "\n" alone.
        before = (self.text[:start] + "|").splitlines()
        shown = self.text[start:end].splitlines()
        return Position(len(before), len(before[-1]), max(1, len(shown[0]) if shown else 1))


def span(node: Any) -> tuple[int, int] | None:
    """Start and end offset of an AST node, from whatever below it knows its place."""
    if "span" in node.meta:
        start, end = node.meta["span"]
        return start, end
    spans = [
        found.meta.get("span") or (found.meta["start"], found.meta["end"] + 1)
        for found in node.walk()
        if "span" in found.meta or "start" in found.meta
    ]
    if not spans:
        return None
    return min(start for start, _ in spans), max(end for _, end in spans)
