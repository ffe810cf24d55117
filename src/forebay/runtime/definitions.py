"""SHOW CREATE and DESCRIBE VIEW: what the catalog and a view's table say, without Spark."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.catalog import Catalog, Definition
from forebay.errors import UnsupportedSqlError
from forebay.runtime.known import unknown
from forebay.runtime.late_tables import TABLE
from forebay.runtime.results import Result
from forebay.runtime.status import QueryStatus
from forebay.runtime.times import time_text
from forebay.views.paths import paths_of

if TYPE_CHECKING:
    from forebay.sql import CreateSource, CreateView, Statement, ViewPlan
    from forebay.views.changes import ChangeFeed
    from forebay.views.groups.group_table import GroupTable
    from forebay.views.table import ViewTable


def defined(catalog: Catalog, kind: str, name: str) -> Definition:
    """UnknownObjectError if there is none of this kind."""
    definition = catalog.get(name)
    if definition is None or definition.kind != kind:
        raise unknown(kind, name, [each.name for each in catalog.all(kind)])
    return definition


def source_statement(text: str) -> CreateSource:
    """What a source's definition says. Parsed once for each text, in a process: what the catalog has rarely changes."""
    from forebay.sql import CreateSource

    statement = _parsed(text)
    assert isinstance(statement, CreateSource)
    return statement


def view_statement(text: str) -> CreateView:
    """What a view's definition says, likewise."""
    from forebay.sql import CreateView

    statement = _parsed(text)
    assert isinstance(statement, CreateView)
    return statement


@lru_cache(256)
def _parsed(text: str) -> Statement:
    # A definition in the catalog has no secrets, so none is kept here. Planning edits text, never a tree.
    from forebay.sql import parse_one

    return parse_one(text)


def kind_of(catalog: Catalog, name: str) -> str:
    """Whether it is a source or a view: both cannot have the same name."""
    definition = catalog.get(name)
    if definition is None:
        names = [each.name for kind in ("source", "view") for each in catalog.all(kind)]
        raise unknown("source or view", name, names)
    if definition.kind == TABLE:
        raise UnsupportedSqlError(
            f"'{name}' is the table of late rows of view '{definition.detail['view']}', with the columns of its source",
            remedy=f"read it with SELECT; DESCRIBE VIEW {definition.detail['view']} is about its view",
        )
    return definition.kind


def table_of_view(home: Path, catalog: Catalog, view: str) -> ViewTable:
    from forebay.views.table import ViewTable

    defined(catalog, "view", view)
    return ViewTable(paths_of(home, view).table)


def groups_of_view(home: Path, catalog: Catalog, view: str) -> GroupTable | None:
    """What the table of a view that groups is made of, and follows; None where there is no such thing."""
    detail = defined(catalog, "view", view).detail
    if "program" not in detail or detail["emit"] != "changes":
        return None  # and what reads groups need not be loaded
    from forebay.program import Grouping, program_from_json
    from forebay.views.groups.of_program import group_table

    program = program_from_json(detail["program"])
    assert isinstance(program, Grouping)
    return group_table(
        paths_of(home, view), program, tuple(detail["keys"]), table_of_view(home, catalog, view)
    )


def changes_of_view(home: Path, catalog: Catalog, view: str) -> ChangeFeed:
    """What a subscriber to a view is given."""
    from forebay.views.changes import TableChanges
    from forebay.views.groups.group_changes import GroupChanges

    groups, table = groups_of_view(home, catalog, view), table_of_view(home, catalog, view)
    return TableChanges(table) if groups is None else GroupChanges(view, groups, followed_as(home, view))


def followed_as(home: Path, view: str) -> str:
    """What `views.followers` knows a view by."""
    return str(paths_of(home, view).table.parent)


def show_create(catalog: Catalog, kind: str, name: str) -> Result:
    return Result.of(("create_statement",), [(defined(catalog, kind, name).sql,)])


def describe_view(home: Path, catalog: Catalog, name: str, status: QueryStatus | None) -> Result:
    """DESCRIBE VIEW; with its status, DESCRIBE EXTENDED VIEW."""
    import pyarrow as pa

    from forebay.answers.spark_returns import sql_name
    from forebay.sql.text import WEIGHT

    definition = defined(catalog, "view", name)
    table = table_of_view(home, catalog, name)
    schema = pa.schema(table.open().schema().to_arrow())
    hidden = WEIGHT if definition.detail.get("kept") == "rows" else None
    rows = [(field.name, sql_name(field.type)) for field in schema if field.name != hidden]
    notes = [f"Sources: {', '.join(definition.detail['sources'])}", f"Emit: {definition.detail['emit']}"]
    if status is not None:
        notes += [f"{key}: {value}" for key, value in vars(status).items() if key != "view"]
        notes += [
            f"{time_text(at)} {state} {message}".rstrip()
            for at, state, message in catalog.history(name)[-10:]
        ]
        size = table.size()
        vacuumed = f"last vacuumed {time_text(size.vacuumed_ms)}" if size.vacuumed_ms else "never vacuumed"
        notes.append(f"Table: {table.path}")
        groups = groups_of_view(home, catalog, name)
        if groups is not None:
            notes.append(f"Behind the groups: {groups.staleness_s():.1f} s")
        notes.append(f"Files: {size.files}, {size.size:,} bytes, {vacuumed}")
    return Result.of(("column", "type"), rows, notes)


def detail_of(plan: ViewPlan) -> dict[str, Any]:
    """What the catalog keeps of a view's plan."""
    detail: dict[str, Any] = {
        "sources": list(plan.tables),
        "emit": plan.emit,
        "keys": list(plan.merge_keys),
    }
    if plan.kept:
        detail["kept"] = plan.kept
    if plan.partial:
        detail["partial"] = True
    return detail
