"""The pool of this process: what is in flight, how far it may be committed, and what holds it back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from forebay.errors import PoolStateError
from forebay.web.model import HotKey, PoolPartition, PoolRow
from forebay.web.shown import inert, text_of

if TYPE_CHECKING:
    from forebay.pool.pool import Pool


def pool_row(pool: Pool, *, hide_payloads: bool) -> PoolRow:
    from forebay.pool.stats import PoolStats, gaps_of, hot_keys_of

    try:
        stats = pool.stats()
    except PoolStateError as error:
        return PoolRow(pool.name, str(pool.state), error.message, {})
    gaps = {(each.topic, each.partition): each for each in gaps_of(pool)}
    partitions = []
    for each in stats.partitions:
        gap = gaps.get((each.topic, each.partition))
        partitions.append(
            PoolPartition(
                each.topic,
                each.partition,
                each.frontier or 0,
                gap.beyond if gap else 0,
                gap.open if gap else each.uncommitted,
                each.uncommitted,
                each.lag,
            )
        )
    figures: dict[str, int | float | None] = {
        field.name: value
        for field in fields(PoolStats)
        if isinstance(value := getattr(stats, field.name), int | float)
    }
    figures["lag"] = stats.lag
    keys = [
        HotKey("•••" if hide_payloads else text_of(key) or f"0x{key[:64].hex()}", waiting)
        for key, waiting in hot_keys_of(pool)
    ]
    return PoolRow(inert(stats.name), str(stats.state), "", figures, partitions, keys)
