"""Names of functions and columns that are not there: where they stand, and which were meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from forebay.errors import StatementError, UnsupportedSqlError
from forebay.sql.dialect import Forebay
from forebay.sql.functions import KNOWN
from forebay.sql.positions import Script

_FUNCTIONS = {"UNRESOLVED_ROUTINE": "routineName", "UNRESOLVABLE_TABLE_VALUED_FUNCTION": "name"}
_COLUMN = "UNRESOLVED_COLUMN"
_REGISTER = (
    "Spark's functions are there, TUMBLE, HOP and SESSION, and what session.spark.udf.register(…) adds"
)


def misspelled_function(query: Any) -> StatementError | None:
    """A call of what is no function and looks like one: found without asking Spark.

    A name that resembles none is left to Spark, which may know more functions.
    """
    for node in query.find_all(exp.Anonymous):
        name = str(node.name)
        if isinstance(node.parent, exp.Dot) or name.lower() in KNOWN or not _near(name, KNOWN):
            continue
        return _no_function(query, [name], KNOWN)
    return None


def unresolved(
    query: Any,
    condition: str,
    parameters: Mapping[str, str],
    more_functions: Callable[[], Iterable[str]] = tuple,
) -> StatementError | None:
    """Spark's word that it does not know a name, as an error at that name; None if it says something else."""
    if condition in _FUNCTIONS:
        parts = _parts(parameters.get(_FUNCTIONS[condition], ""))
        return _no_function(query, parts, KNOWN.union(more_functions())) if parts else None
    if condition.partition(".")[0] != _COLUMN or not (parts := _parts(parameters.get("objectName", ""))):
        return None
    known = [_parts(each) for each in re.findall(r"(?:`[^`]*`\.?)+", parameters.get("proposal", ""))]
    # Where the name is there, what stands before it is wrong.
    found = next((each for each in known if each[-1].lower() == parts[-1].lower()), None)
    near = ".".join(found) if found else _near(parts[-1], [each[-1] for each in known])
    if near:
        remedy = f"did you mean {near}?"
    elif known:
        remedy = "there are: " + ", ".join(each[-1] for each in known)
    else:
        remedy = "name a column of the source or view that it is read from"
    return _refusal(
        query, f"there is no column '{'.'.join(parts)}'", remedy, _place(query, parts, call=False)
    )


def _no_function(query: Any, parts: Sequence[str], known: Iterable[str]) -> StatementError:
    near = _near(parts[-1], known)
    remedy = f"did you mean {near}?" if near else _REGISTER
    return _refusal(
        query, f"there is no function '{'.'.join(parts)}'", remedy, _place(query, parts, call=True)
    )


def _near(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, 1, 0.75)
    return next((each for each in known if found and each.lower() == found[0]), "")


def _parts(name: str) -> list[str]:
    """`a`.`b` as Spark writes names in its messages."""
    return re.findall(r"`([^`]*)`", name) or ([name] if name else [])


def _place(query: Any, parts: Sequence[str], *, call: bool) -> tuple[int, int] | None:
    """Where the name stands: the first place where it is what it was taken for."""
    start, end = query.meta["span"]
    tokens = Forebay().tokenize(query.meta["script"][start:end])
    wanted = [part.lower() for part in parts]
    for at in range(len(tokens)):
        named = tokens[at : at + 2 * len(wanted) - 1]
        if [token.text.lower() for token in named[::2]] != wanted or any(
            token.token_type == TokenType.STRING for token in named[::2]
        ):
            continue
        if any(token.token_type != TokenType.DOT for token in named[1::2]):
            continue
        before = tokens[at - 1].token_type if at else None
        following = tokens[at + len(named)].token_type if at + len(named) < len(tokens) else None
        if before in (TokenType.DOT, TokenType.ALIAS) or (following == TokenType.L_PAREN) is not call:
            continue
        return start + named[0].start, start + named[-1].end + 1
    return None


def _refusal(query: Any, message: str, remedy: str, place: tuple[int, int] | None) -> StatementError:
    script = Script(query.meta["written"])
    position = script.position(*(place or query.meta["span"]))
    return UnsupportedSqlError(message, remedy=remedy, position=position, statement=script.text)
