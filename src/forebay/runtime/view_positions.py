"""Where several readers of one source stand together: no further than the one that is behind."""

from __future__ import annotations

from typing import Any

from forebay.connectors.contract import Offsets


def earlier(one: Offsets, other: Offsets) -> Offsets:
    """What both have read: of each number in the two positions the smaller one.

    Two readers may each be ahead in another partition, so neither position as a whole would do. What
    only one of them knows (a partition that the other has not seen yet) is left out.
    """
    return {key: _lesser(value, other[key]) for key, value in one.items() if key in other}


def _lesser(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return earlier(one, other)
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else one
