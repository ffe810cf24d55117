"""`forebay_catalog.source_errors`: how many records of each source did not decode, and what became of them."""

from __future__ import annotations

import pyarrow as pa

from forebay.catalog import Catalog, SourceErrors
from forebay.deadletter.entry import moment
from forebay.runtime.known import KnownSources

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
        pa.field("example", pa.string()),
        pa.field("on_error", pa.string(), nullable=False),
    ]
)


def source_errors(catalog: Catalog, sources: KnownSources) -> pa.Table:
    """A row a source, also for those without errors."""
    counted = {found.source_name: found for found in catalog.source_errors()}
    rows = []
    for name in sources.names():
        found = counted.get(name) or SourceErrors(name, 0, 0.0, 0, 0, 0, {}, 0, None)
        rows.append(
            {
                "source_name": name,
                "errors_total": found.errors_total,
                "errors_per_second": found.errors_per_second,
                "dlq_total": found.dlq_total,
                "skipped": found.skipped,
                "rate_limited": found.rate_limited,
                "by_kind": sorted(found.by_kind.items()),
                "last_error": moment(found.last_error_ms or None),
                "example": found.example,
                "on_error": sources.policy(name).strategy,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)
