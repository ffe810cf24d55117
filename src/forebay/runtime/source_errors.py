"""`forebay_catalog.source_errors`: how many records of each source did not decode, and what became of them."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa

from forebay.catalog import Catalog
from forebay.runtime.sources import Sources

WINDOW_MS = 10_000  # errors_per_second is over the last ten seconds: a batch's errors come all at once

SCHEMA = pa.schema(
    [
        pa.field("source_name", pa.string(), nullable=False),
        pa.field("errors_total", pa.int64(), nullable=False),
        pa.field("errors_per_second", pa.float64(), nullable=False),
        pa.field("dlq_total", pa.int64(), nullable=False),
        pa.field("skipped", pa.int64(), nullable=False),
        pa.field("rate_limited", pa.int64(), nullable=False),
        pa.field("by_kind", pa.map_(pa.string(), pa.int64()), nullable=False),
        pa.field("last_error", pa.timestamp("us", "UTC")),
        pa.field("on_error", pa.string(), nullable=False),
    ]
)


def source_errors(catalog: Catalog, sources: Sources) -> pa.Table:
    """A row a source, also for those without errors.

    Each view reads its source by itself. A bad record that two of them met is one error, so the counts are
    those of the view that met most.
    """
    rows = []
    for name in sources.names():
        clause = sources.statement(name).on_error
        totals = max(catalog.totals(source=name), key=lambda item: sum(item.rejected.values()), default=None)
        kinds = Counter(totals.rejected) if totals else Counter()
        errors = sum(kinds.values())
        strategy = clause.strategy if clause else "skip"
        recent = _recent(catalog, totals.view) if totals else 0
        rows.append(
            {
                "source_name": name,
                "errors_total": errors,
                "errors_per_second": recent / (WINDOW_MS / 1000),
                "dlq_total": errors if strategy == "dead_letter" else 0,
                "skipped": errors if strategy == "skip" else 0,
                "rate_limited": 0,
                "by_kind": sorted(kinds.items()),
                "last_error": datetime.fromtimestamp(totals.at_ms / 1000, UTC) if totals and errors else None,
                "on_error": strategy,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def _recent(catalog: Catalog, view: str) -> int:
    since = time.time() * 1000 - WINDOW_MS
    return sum(rejected for _, at_ms, _, rejected, _ in catalog.batches(view, 1_000) if at_ms >= since)
