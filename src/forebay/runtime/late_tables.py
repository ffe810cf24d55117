"""Tables of late rows: `LATE DATA TO name` makes one, which SELECT finds under that name and which goes with its view."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.catalog import Catalog, Definition
from forebay.errors import ObjectExistsError, ObjectInUseError
from forebay.views.paths import paths_of

if TYPE_CHECKING:
    from forebay import sql
    from forebay.views.table import ViewTable

TABLE = "table"  # the kind of object that one is to the catalog


def check_name_is_free(catalog: Catalog, statement: sql.CreateView) -> None:
    """ObjectExistsError if the table of late rows would have a name that is taken."""
    table = statement.late.table
    if table is None:
        return
    known = catalog.get(table)
    mine = known is not None and known.kind == TABLE and known.detail.get("view") == statement.name
    if table == statement.name or (known is not None and not mine):
        kind = "view" if known is None else known.kind
        raise ObjectExistsError(f"LATE DATA TO {table}: '{table}' is a {kind}", remedy="choose another name")


def register(catalog: Catalog, statement: sql.CreateView) -> None:
    """From now on SELECT finds the table of late rows under its name."""
    if statement.late.table is not None:
        text = f"LATE DATA OF {statement.name}"
        detail = {"view": statement.name}
        catalog.put(Definition(statement.late.table, TABLE, text, int(time.time() * 1000), detail))


def forget(catalog: Catalog, view: str) -> None:
    """With its view, a table of late rows goes."""
    for known in catalog.all(TABLE):
        if known.detail.get("view") == view:
            catalog.drop(known.name)


def check_letters_wanted(catalog: Catalog, source: str) -> None:
    """ObjectInUseError if a view over the source sends its late rows to its dead letters: it cannot be without them."""
    wanting = [
        view.name
        for view in catalog.all("view")
        if view.detail.get("late_letters") and source in view.detail.get("sources", ())
    ]
    if wanting:
        raise ObjectInUseError(
            f"source '{source}' has dead letters for view '{wanting[0]}', which says LATE DATA TO DEAD LETTERS",
            remedy=f"DROP MATERIALIZED VIEW {wanting[0]} first, or create it anew with LATE DATA TO a name",
        )


def late_table(home: Path, definition: Definition) -> ViewTable:
    """The table of late rows that goes by this name."""
    from forebay.views.table import ViewTable

    return ViewTable(paths_of(home, definition.detail["view"]).late)
