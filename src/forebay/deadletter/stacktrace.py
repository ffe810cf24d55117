"""Where a handler failed, as text for its dead letter and for the log."""

from __future__ import annotations

import logging
import traceback
from types import TracebackType

from forebay.errors import ForebayError

LONGEST = 8_000  # characters: it is a header of a record, and brokers take a megabyte for all of it
LONGEST_PART = 1_000  # of a frame or a message: some quote all they were given
_OURS = "forebay."


def handler_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the handler on: without the frames of Forebay that called it."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        found = found.tb_next
    return found


def stacktrace_of(error: BaseException) -> str | None:
    """As Python prints it; of a long one the end, where it was raised. None of an error that is Forebay's own."""
    if isinstance(error, ForebayError):
        return None
    parts = traceback.format_exception(type(error), error, handler_frames(error))
    text = "".join(part if len(part) <= LONGEST_PART else part[:LONGEST_PART] + "…\n" for part in parts)
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]


def logged_frames(
    error: BaseException, log: logging.Logger
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """The `exc_info` of a log line: the handler's traceback where the log says more (`forebay -v`), none elsewhere."""
    if isinstance(error, ForebayError) or not log.isEnabledFor(logging.INFO):
        return None
    return type(error), error, handler_frames(error)
