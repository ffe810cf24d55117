"""Which statements change something, and their lines in the audit log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from forebay import actors, sql
from forebay.catalog.audit import AuditLog, Note

_LOOKS = (sql.Show, sql.ShowCreate, sql.Describe, sql.Select, sql.Explain, sql.Subscribe)
_TRIED = (sql.ReplayDeadLetters, sql.DiscardDeadLetters, sql.ReopenDeadLetters, sql.RecoverDeadLetters)


def is_change(statement: sql.Statement) -> bool:
    """Whether it changes anything: all do that are not among those that only look, or try."""
    if isinstance(statement, _TRIED):
        return not statement.dry_run
    return not isinstance(statement, _LOOKS)


def verb_of(statement: sql.Statement) -> str:
    """`CreateSource` as `create source`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(statement).__name__).lower()


def target_of(statement: sql.Statement) -> str:
    return str(getattr(statement, "name", None) or getattr(statement, "source", None) or "")


@contextmanager
def noted(log: AuditLog, statement: sql.Statement) -> Iterator[Note]:
    """A statement runs in this block. One that changes something gets a line: done, or failed and why.

    The line has no text of the statement, in which there may be secrets.
    """
    if not is_change(statement):
        yield Note()
        return
    with log.noted(actors.current(), verb_of(statement), target_of(statement), "by SQL") as note:
        yield note
