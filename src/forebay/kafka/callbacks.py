"""Functions that the Kafka client calls back.

When a client has failed for good (its transactional id or its place in a group is somebody else's), confluent-kafka
leaves that error pending while it goes on to call what it was given: a logger, a listener of deliveries. Python does not
expect to be called like that: sooner or later in the function it makes a SystemError of it, which says nothing of the
cause. Here the pending error is set aside first, and raised when the function has done its work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Any function of the interpreter would do: ctypes raises what is pending after the call.
_raise_pending = ctypes.pythonapi.Py_IsInitialized


def called_back(function: Callable[P, R]) -> Callable[P, R]:
    """For functions that are given to a Kafka client."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _raise_pending()
        except Exception as error:
            function(*args, **kwargs)
            raise error from None
        return function(*args, **kwargs)

    return call
