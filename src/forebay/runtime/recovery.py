"""A view whose checkpoint, or whose whole home, is lost: it goes on where its table says that it stands, or is made anew."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay import sql
from forebay.catalog import Catalog, Definition
from forebay.errors import CheckpointError, ObjectInUseError, UnsupportedSqlError
from forebay.files import write_whole
from forebay.runtime.definitions import defined, view_statement
from forebay.runtime.shared_view import END

if TYPE_CHECKING:
    from forebay.runtime.query import RunningQuery
    from forebay.runtime.views import Views


def recover(views: Views, catalog: Catalog, name: str, *, rebuild: bool) -> list[str]:
    """Start the view; returns what happened, and what is gone."""
    known = defined(catalog, "view", name)
    if name in views.running:
        raise ObjectInUseError(
            f"view '{name}' runs, and needs no recovery", remedy=f"to make it anew: STOP VIEW {name} first"
        )
    if rebuild:
        if views.paths(name).member is not None:
            raise UnsupportedSqlError(
                f"the table of view '{name}' cannot be made anew: other members of the group add to it",
                remedy=f"forebay recover {name}, without --rebuild, goes on where the group and the table stand",
            )
        statement = view_statement(known.sql)
        views.check(statement)
        views.drop(name)
        done, notes = views.create(statement)
        return [f"{done}: its table is made anew of what its sources still hold", *notes]
    views.recovering.add(name)
    try:
        return [views.start(name)]
    finally:
        views.recovering.discard(name)


def create_or_adopt(views: Views, catalog: Catalog, statement: sql.CreateView) -> tuple[str, list[str]]:
    """CREATE MATERIALIZED VIEW. In a session that adopts, a table that is at the place of a new view is its own, of a home
    that is lost: the view goes on where that table stands."""
    name, paths = statement.name, views.paths(statement.name)
    if not views.adopting or catalog.get(name) is not None or not views.places.adopt(paths, statement):
        return views.create(statement)
    text = sql.to_sql(replace(statement, if_not_exists=False, or_replace=False))
    catalog.put(Definition(name, "view", text, int(time.time() * 1000), {"adopted": True}))
    table = paths.table
    paths.adopting.touch()
    try:
        recover(views, catalog, name, rebuild=False)
    except BaseException as error:
        catalog.drop(name)
        shutil.rmtree(paths.root, ignore_errors=True)  # and nothing of the table
        if isinstance(error, CheckpointError):
            remedy = f"remove {table}, and run again: the view is made anew of what the topics still hold"
            raise CheckpointError(error.message, remedy=remedy) from None
        raise
    paths.adopting.unlink()
    return f"view {name} adopted: it goes on where its table at {table} stands", []


def gone(view: str, *, recoverable: bool) -> CheckpointError:
    """The checkpoint of a view is not there any more, and its table is."""
    flag, what = (
        ("", "goes on where the table stands") if recoverable else (" --rebuild", "reads the source again")
    )
    return CheckpointError(
        f"the checkpoint of view '{view}' is gone, but its table is there: going on would write rows twice",
        remedy=f"restore the checkpoint; or type: forebay recover {view}{flag}, which {what}",
    )


def take_word_of_table(query: RunningQuery, *, stateless: bool) -> None:
    """A view with a query of its own goes on where its table stands. Only where Spark kept nothing for it."""
    found = query.table.newest_metadata().get(END)
    if not stateless or found is None:
        raise CheckpointError(
            f"view '{query.name}' cannot go on: groups, windows or joins that Spark kept for it were in the checkpoint",
            remedy=f"restore the checkpoint; or type: forebay recover {query.name} --rebuild, which makes its table anew of "
            "what the topics still hold",
        )
    write_whole(query.paths.start, found.encode())
    query.recovering = True
