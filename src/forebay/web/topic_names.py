"""Which topics a source reads, by its options."""

from __future__ import annotations

import re
from collections.abc import Mapping


def reads_topic(options: Mapping[str, str], topic: str) -> bool:
    """Whether a source with these options reads a topic: named alone, in a list, or by a pattern."""
    if (pattern := options.get("topic.pattern")) is not None:
        return re.fullmatch(pattern, topic) is not None
    named = options.get("topics") or options.get("topic") or ""
    return topic in (part.strip() for part in named.split(","))
