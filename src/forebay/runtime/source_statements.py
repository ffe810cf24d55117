"""CREATE, REPLACE and DROP of sources, with the views over them; DROP of views."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from forebay import sql as language
from forebay.catalog import Catalog
from forebay.errors import ObjectInUseError
from forebay.runtime.known import unknown
from forebay.runtime.replacing import differences
from forebay.runtime.results import Result
from forebay.runtime.sources import Sources, found_columns
from forebay.runtime.views import Views


class SourceStatements:
    """Of a session. `forget` is called with a source that is dropped."""

    def __init__(
        self,
        catalog: Catalog,
        sources: Sources,
        views: Views,
        lock: AbstractContextManager[Any],
        forget: Callable[[str], None],
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._views = views
        self._lock = lock
        self._forget = forget

    def create_source(self, statement: language.CreateSource) -> Result:
        with self._lock:
            views = self._views.over(statement.name)
            known = self._catalog.get(statement.name)
            evolving = "schema.evolution" in statement.options
            if evolving and views and known and self._sources.is_same(statement, known):
                # The columns that came since stay: the views over it have them.
                statement = replace(statement, or_replace=False)
            if statement.or_replace and views and known and known.sql != self._sources.masked(statement):
                return self._replace_source(statement, views)
            created, discovered = self._sources.create(statement)
        notes: tuple[str, ...] = ()
        if discovered is not None:
            notes = tuple(found_columns(discovered))
        elif created:
            notes = self._sources.peek(statement.name).notes()
        done = f"source {statement.name} {'created' if created else 'exists already'}"
        return Result(done=done, notes=notes)

    def set_options(self, statement: language.SetSource) -> Result:
        """Other options for a source: as CREATE OR REPLACE SOURCE with all else as it is. Views go on where they can."""
        if statement.name not in self._sources.names():
            raise unknown("source", statement.name, self._sources.names())
        known = self._sources.statement(statement.name)
        options = {**known.options, **statement.options}
        for key, value in statement.options.items():
            if not value.text:
                del options[key]
        result = self.create_source(replace(known, options=options, or_replace=True, if_not_exists=False))
        return Result(
            done=f"source {statement.name} altered: {', '.join(statement.options)}", notes=result.notes
        )

    def _replace_source(self, statement: language.CreateSource, views: list[str]) -> Result:
        """Of a source that views read: where they can go on over the new one, they are started again."""
        old = self._sources.statement(statement.name)
        found = differences(old, statement, self._sources.peek(statement.name).options.table.shown)
        against = [each.text for each in found if not each.compatible]
        if against:
            raise ObjectInUseError(
                f"source '{statement.name}' cannot be replaced while {', '.join(views)} reads from it: "
                + "; ".join(against),
                remedy=f"DROP SOURCE {statement.name} CASCADE drops the views too; or give the new source another name",
            )
        running = [view for view in views if view in self._views.running]
        for view in running:
            self._views.running.pop(view).stop()
        try:
            self._sources.create(statement)
        finally:
            for view in running:
                self._views.start(view)
        notes = [*(each.text for each in found), *self._sources.peek(statement.name).notes()]
        again = f"; {', '.join(running)} started again" if running else ""
        return Result(done=f"source {statement.name} replaced{again}", notes=notes)

    def drop(self, statement: language.Drop) -> Result:
        names = self._sources.names() if statement.kind == "source" else self._views.names()
        if statement.kind == "sink":
            names = []
        if statement.name not in names:
            if statement.if_exists:
                return Result(done=f"there is no {statement.kind} {statement.name}")
            raise unknown(statement.kind, statement.name, names)
        with self._lock:
            if statement.kind == "view":
                notes = self._left(statement.name)
                self._views.drop(statement.name)
                return Result(done=f"view {statement.name} dropped", notes=notes)
            views = self._views.over(statement.name)
            if views and not statement.cascade:
                raise ObjectInUseError(
                    f"source '{statement.name}' is read by {', '.join(views)}",
                    remedy=f"DROP SOURCE {statement.name} CASCADE drops them too",
                )
            notes = [note for view in views for note in self._left(view)]
            for view in views:
                self._views.drop(view)
            self._forget(statement.name)
            self._sources.drop(statement.name)
        dropped = "".join(f", view {view} too" for view in views)
        return Result(done=f"source {statement.name} dropped{dropped}", notes=notes)

    def _left(self, view: str) -> list[str]:
        """What DROP does not remove."""
        paths = self._views.paths(view)
        if paths.member is None:
            return []
        return [f"note: the table at {paths.table} stays: other members of the group may add to it"]
