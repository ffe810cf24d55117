"""Where the tables of a new view are."""

from __future__ import annotations

import os

from forebay import sql
from forebay.errors import ObjectExistsError
from forebay.object_path import ObjectPath, TablePath, table_path
from forebay.views.options import VIEW
from forebay.views.paths import ViewPaths, place_of


def storage_of(given: str | None) -> str | None:
    """Where the tables of new views are: what is given, or FOREBAY_STORAGE; None: in the home. OptionValueError."""
    storage = given or os.environ.get("FOREBAY_STORAGE") or None
    if storage is not None:
        table_path(storage)
    return storage


def settle_place(paths: ViewPaths, statement: sql.CreateView, storage: str | None) -> None:
    """ObjectExistsError if something is there already: it may be the table of another home."""
    options = VIEW.bind({key: value.text for key, value in statement.options.items()})
    place = place_of(options["location"], storage, statement.name)
    if place is None:
        return
    if _holds_something(place):
        raise ObjectExistsError(
            f"there is something at {place} already, and view '{statement.name}' is new",
            remedy="choose another location or storage; if it is the view's own table, and the home that it had is lost: "
            "forebay run --adopt goes on with it; if nobody needs it, remove what is there",
        )
    paths.put(options["location"], storage, statement.name)


def adopt_place(paths: ViewPaths, statement: sql.CreateView, storage: str | None) -> bool:
    """Whether there is a table at the place of a view that this home does not know. Then that place is its own from now on."""
    options = VIEW.bind({key: value.text for key, value in statement.options.items()})
    place = place_of(options["location"], storage, statement.name)
    if place is None or not _holds_something(place):
        return False
    paths.put(options["location"], storage, statement.name)
    if (ViewPaths(paths.root).table / "_delta_log").exists():
        return True
    paths.forget_place()
    return False


def _holds_something(place: TablePath) -> bool:
    if isinstance(place, ObjectPath):
        return place.exists()
    return place.exists() and (not place.is_dir() or any(place.iterdir()))
