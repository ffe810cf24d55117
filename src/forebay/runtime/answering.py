"""SELECTs over a home's views and catalog tables, answered in this process where Spark would give the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.answers.answer import Answer, answer
from forebay.answers.question import NeedsSpark
from forebay.answers.reading import one_table
from forebay.answers.view_tables import Table, group_rows, view_table
from forebay.catalog import Catalog
from forebay.runtime.catalog_tables import CatalogTables
from forebay.runtime.definitions import groups_of_view, table_of_view
from forebay.runtime.known import unknown
from forebay.runtime.late_tables import TABLE, late_table
from forebay.runtime.results import Result


class Answers:
    """`setting` names a setting of Spark under which its answers may be others, if there is one."""

    def __init__(
        self, home: Path, catalog: Catalog, tables: CatalogTables, setting: Callable[[], str | None]
    ) -> None:
        self._home = home
        self._catalog = catalog
        self._tables = tables
        self._setting = setting

    def to(self, query: Any) -> Answer:
        """NeedsSpark where the answer is Spark's; UnknownObjectError if there is no such table."""
        table = self._table(one_table(query), query)
        setting = self._setting()
        if setting is not None:
            raise NeedsSpark(f"the setting {setting}")
        return answer(query, table)

    def _table(self, name: str, query: Any) -> Table:
        found = self._tables.table(name, query)
        if found is not None:
            return found
        known = self._catalog.get(name)
        if known is None:
            names = [each.name for kind in ("view", "source") for each in self._catalog.all(kind)]
            raise unknown("view or source", name, names)
        if known.kind == TABLE:
            return view_table(name, late_table(self._home, known).open(), weighed=False)
        if known.kind != "view":
            raise NeedsSpark(f"{name}, which is a source")
        groups = groups_of_view(self._home, self._catalog, name)
        if groups is not None:  # of which its table may be behind
            return group_rows(name, groups.rows())
        table = table_of_view(self._home, self._catalog, name).open()
        return view_table(name, table, weighed=known.detail.get("kept") == "rows")


def explained(found: Answer) -> Result:
    """EXPLAIN of a SELECT that needs no Spark."""
    question = found.question
    rows = [("answered by", "Arrow, in this process"), ("reads", found.table.about)]
    rows.append(("columns", ", ".join(question.columns)))
    return Result.of(("step", "what"), rows)


def explained_by_spark(reason: str, plan: str) -> Result:
    return Result.of(("step", "what"), [("answered by", "Spark"), ("because of", reason), ("plan", plan)])
