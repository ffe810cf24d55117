"""What exists and how it fares: SQLite in the project's home, readable while a pipeline runs."""

from forebay.catalog.catalog import (
    BatchRecord,
    BatchTimes,
    Catalog,
    Definition,
    Event,
    EventKind,
    QueryState,
    SourceErrors,
    Totals,
)

__all__ = [
    "BatchRecord",
    "BatchTimes",
    "Catalog",
    "Definition",
    "Event",
    "EventKind",
    "QueryState",
    "SourceErrors",
    "Totals",
]
