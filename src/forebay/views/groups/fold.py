"""Which runs become one. Each row is written again a logarithmic number of times, and a reader finds few runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from forebay.views.groups.layout import SEQUENCE, numbers
from forebay.views.groups.log import GroupLog, Run

# Runs of about one size that are folded into one. More: fewer bytes are written, more runs are read.
FAN = 8
# Of the oldest run's rows, what may be in newer ones before all become one. A SELECT reads these as well.
SHARE = 0.5
_SMALL = 64  # rows: what a file costs by itself outweighs so few


def plan(runs: Sequence[Run]) -> Sequence[Run]:
    """The newest runs that are to become one; none if all is well. `runs` go from old to new."""
    if len(runs) < 2:
        return ()
    tail = sum(run.rows for run in runs[1:])
    if len(runs) > FAN // 2 and tail >= SHARE * runs[0].rows:
        return runs
    tiers = [_tier(run.rows) for run in runs]
    for place in range(
        len(runs) - 2, -1, -1
    ):  # an older run is never of a lower tier than those that follow it
        tiers[place] = max(tiers[place], tiers[place + 1])
    full = [
        place for place, tier in enumerate(tiers) if tiers.count(tier) >= FAN and tiers.index(tier) == place
    ]
    return runs[full[0] :] if full else ()


def _tier(rows: int) -> int:
    return int(math.log(max(rows, _SMALL), FAN))


def folded(log: GroupLog, runs: Sequence[Run], schema: pa.Schema, without: int | None = None) -> Run:
    """One run with the newest row of each group in these, not part of the table yet. Reads a piece at a time.

    Rows whose sequence is `without` are left out: nothing older is left that they stand for.
    """
    keep = log.newest(runs)
    batches = (
        batch
        for run, flags in zip(runs, keep, strict=True)
        for batch in log.batches(run, flags, schema.names)
    )
    if without is not None:
        kept = batches
        batches = (batch.filter(pa.array(numbers(batch.column(SEQUENCE)) != without)) for batch in kept)
    return log.write(schema, batches, runs[0].first, runs[-1].last)
