"""A home with a view that some process has finished with, made without running one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from forebay.catalog import Catalog
from forebay.catalog.catalog import Definition
from forebay.views.paths import paths_of


def finished_view(
    home: Path, name: str, *batches: pa.Table, query: str = "SELECT * FROM s", **detail: Any
) -> None:
    """A view whose table has a file a batch; a later one may have more columns."""
    path = paths_of(home, name).table
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, batch in enumerate(batches):
        write_deltalake(
            str(path),
            batch,
            mode="append",
            schema_mode="merge" if place else None,
            configuration={"delta.enableChangeDataFeed": "true"},
        )
    catalog = Catalog(home / "catalog.db")
    known = {"sources": ["s"], "emit": "append", "keys": [], "columns": {}, **detail}
    catalog.put(Definition(name, "view", f"CREATE MATERIALIZED VIEW {name} AS\n{query}", 0, known))
    catalog.close()
