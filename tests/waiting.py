"""Waiting for a condition, and never for a while: in a thread, and in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], what: str, timeout: float = 30, pause: float = 0.02) -> Any:
    """Wait until a condition is truthy, and return what it returned."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(pause)
    return found


async def until(condition: Callable[[], Any], what: str, timeout: float = 40) -> Any:
    """The same in an event loop; the condition may be one to be awaited."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        await asyncio.sleep(0.01)
