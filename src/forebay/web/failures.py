"""Errors as the dashboard and the API show them."""

from __future__ import annotations

from forebay.errors import (
    AuthError,
    BadRequestError,
    ConnectorError,
    ForebayError,
    NeedsSessionError,
    NotLoggedInError,
    ObjectExistsError,
    ObjectInUseError,
    ReadOnlyError,
    RefusedRequestError,
    RuntimeFailure,
    StatementError,
    UnexpectedError,
    UnknownObjectError,
    UnknownTopicError,
)
from forebay.web.model import Failure
from forebay.web.shown import inert

_STATUS: tuple[tuple[type[ForebayError], int], ...] = (
    (NotLoggedInError, 401),
    (ReadOnlyError, 403),
    (RefusedRequestError, 403),
    (UnknownObjectError, 404),
    (UnknownTopicError, 404),
    (ObjectExistsError, 409),
    (ObjectInUseError, 409),
    (NeedsSessionError, 409),
    (BadRequestError, 400),
    (StatementError, 422),
    (AuthError, 503),
    (ConnectorError, 503),
    (RuntimeFailure, 409),
    (UnexpectedError, 503),
)
"""The first that fits. None is 500: that would say that nobody knows what happened."""


def status_of(error: ForebayError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503)


def failure_of(error: ForebayError) -> Failure:
    """With line, column and caret where the statement has a place that is wrong."""
    position = error.position if isinstance(error, StatementError) else None
    caret = ""
    if position is not None:
        lines = str(error).splitlines()[1:]
        caret = "\n".join(line for line in lines if not line.strip().startswith("remedy:"))
    return Failure(
        error.code,
        inert(error.message),
        inert(error.remedy),
        position.line if position else None,
        position.column if position else None,
        inert(caret),
    )
