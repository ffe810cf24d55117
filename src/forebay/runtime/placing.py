"""Where in a script an error is shown: the one place that says so for all that running a statement raises.

What parses and plans knows better, and places its errors itself: a place that is known is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.deadletter.policy import DEAD_LETTER
from forebay.errors import MissingOptionError, OptionError, Position, StatementError

if TYPE_CHECKING:
    from forebay.sql import OptionValue, Statement


@contextmanager
def placed(statement: Statement) -> Iterator[None]:
    """A StatementError out of this block is about the option that it names, or else about the statement."""
    try:
        yield
    except StatementError as error:
        raise error.at(_of_option(error, statement) or statement.position, statement.script) from None


def _of_option(error: StatementError, statement: Statement) -> Position | None:
    """Where the option stands that an error is about, if it stands there."""
    from forebay import sql  # loaded already by whoever has a statement; others import this module, too

    if not isinstance(error, OptionError):
        return None
    options: Mapping[str, OptionValue] = {}
    on_error = None
    if isinstance(statement, sql.CreateSource | sql.CreateView | sql.SetSource):
        options = statement.options
    if isinstance(statement, sql.CreateSource | sql.AlterSource):
        on_error = statement.on_error
    missing = isinstance(error, MissingOptionError)
    if on_error and (error.option == "ON ERROR" or (missing and error.option in DEAD_LETTER)):
        return on_error.position
    places = {**(on_error.options if on_error else {}), **options}
    return places[error.option].position if error.option in places and not missing else None
