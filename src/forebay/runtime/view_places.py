"""Where the tables of a new view are."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from forebay import sql
from forebay.catalog import Catalog
from forebay.errors import ObjectExistsError
from forebay.object_path import ObjectPath, TablePath, table_path
from forebay.program import Program, Selecting
from forebay.runtime.checkpoint_places import checkpoints_of, settle_checkpoint
from forebay.runtime.definitions import defined, view_statement
from forebay.runtime.sources import Sources
from forebay.views.common_table import is_common
from forebay.views.options import VIEW
from forebay.views.paths import OWN, ViewPaths, place_of

OTHERWISE = (
    "choose another location or storage; if it is the view's own table, and the home that it had is lost: forebay run --adopt "
    "goes on with it; if nobody needs it, remove what is there"
)
OF_GROUPS = (
    "give this view a location of its own in each home, and read the tables of all homes together: members of a group have "
    "one table for all only where the view selects rows, while groups are of what one process has read"
)


@dataclass(frozen=True)
class Places:
    """Where a session puts what of new views, if not in the home."""

    tables: str | None = None
    checkpoints: str | None = None

    @classmethod
    def of(cls, storage: str | None, checkpoints: str | None) -> Places:
        """What is given, or what the environment says. OptionValueError."""
        return cls(storage_of(storage), checkpoints_of(checkpoints))


IN_HOME = Places()


def storage_of(given: str | None) -> str | None:
    """Where the tables of new views are: what is given, or FOREBAY_STORAGE; None: in the home. OptionValueError."""
    storage = given or os.environ.get("FOREBAY_STORAGE") or None
    if storage is not None:
        table_path(storage)
    return storage


class ViewPlaces:
    """Of a session."""

    def __init__(self, places: Places, catalog: Catalog, sources: Sources) -> None:
        self._storage = places.tables
        self._checkpoints = places.checkpoints
        self._catalog = catalog
        self._sources = sources

    def settle(self, paths: ViewPaths, statement: sql.CreateView, program: Program | None) -> None:
        """ObjectExistsError if something is there already: it may be the table of another home.

        Members of a group that is shared have one table for all, if the view selects.
        """
        if program is None:
            settle_checkpoint(paths.root, self._checkpoints)
        location = _location(statement)
        place = place_of(location, self._storage, statement.name)
        if place is None:
            return
        shared, member, remedy = self._is_shared(statement), None, OTHERWISE
        if shared and isinstance(program, Selecting):
            table = place if location is not None else place / "table"
            if not _holds_something(place) or is_common(table) or _is_begun(place, table):
                member = str(uuid.uuid4())
        elif shared:
            remedy = OF_GROUPS
        if member is None and _holds_something(place):
            raise ObjectExistsError(
                f"there is something at {place} already, and view '{statement.name}' is new", remedy=remedy
            )
        paths.put(location, self._storage, statement.name, member)

    def check_replaced(self, paths: ViewPaths, statement: sql.CreateView) -> None:
        """ObjectExistsError where a view is to get another query over a table that other members of its group add to."""
        place = place_of(_location(statement), self._storage, statement.name)
        if paths.member is None or place not in (paths.table, paths.table.parent):
            return
        known = defined(self._catalog, "view", statement.name)
        if sql.query_text(view_statement(known.sql).query) != sql.query_text(statement.query):
            raise ObjectExistsError(
                f"the table of view '{statement.name}' is shared by a group, and the rows of all members are of one query",
                remedy="give the new query another location",
            )

    def adopt(self, paths: ViewPaths, statement: sql.CreateView) -> bool:
        """Whether there is a table at the place of a view that this home does not know. Then that place is its own from now on.

        A table that all members of a group append to is no one's own: a new view is one more of them.
        """
        location = _location(statement)
        place = place_of(location, self._storage, statement.name)
        if place is None or not _holds_something(place):
            return False
        paths.put(location, self._storage, statement.name)
        table = ViewPaths(paths.root).table
        if (table / "_delta_log").exists() and not is_common(table):
            return True
        paths.forget_place()
        return False

    def _is_shared(self, statement: sql.CreateView) -> bool:
        known = [self._catalog.get(name) for name in sql.tables(statement.query)]
        sources = [each.name for each in known if each is not None and each.kind == "source"]
        return any(self._sources.peek(name).share is not None for name in sources)


def _location(statement: sql.CreateView) -> str | None:
    found: str | None = VIEW.bind({key: value.text for key, value in statement.options.items()})["location"]
    return found


def _holds_something(place: TablePath) -> bool:
    if isinstance(place, ObjectPath):
        return place.exists()
    return place.exists() and (not place.is_dir() or any(place.iterdir()))


def _is_begun(place: TablePath, table: TablePath) -> bool:
    """Whether another member is about to make the table."""
    if isinstance(place, ObjectPath) or isinstance(table, ObjectPath) or not place.is_dir():
        return False
    above = {each.name for each in place.iterdir()}
    if table != place and above != {table.name}:
        return False
    return {each.name for each in table.iterdir()} <= {"_delta_log", OWN}
