"""What exists and how it fares: SQLite in the project's home, readable while a pipeline runs."""

from forebay.catalog.catalog import BatchRecord, Catalog, Definition, QueryState, SourceErrors, Totals

__all__ = ["BatchRecord", "Catalog", "Definition", "QueryState", "SourceErrors", "Totals"]
