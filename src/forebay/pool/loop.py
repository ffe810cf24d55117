"""An event loop for pools: one whose timers are exact.

asyncio waits in `epoll`, which counts whole milliseconds and is asked to round up: a handler that waits 5 ms waits up
to 6, and a hundred of them lose a tenth of what they could do. `select` on the epoll's own descriptor waits for
microseconds.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Coroutine
from typing import Any

SHORT_S = 0.02  # a wait that is longer than this may as well be rounded


class ExactSelector(selectors.EpollSelector):
    """Short waits end when they should."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and 0 < timeout < SHORT_S:
            number = self.fileno()
            if (
                number < 1024 and not select.select((number,), (), (), timeout)[0]
            ):  # as many as select() knows
                return []
            timeout = 0
        return super().select(timeout)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(ExactSelector())) as runner:
        runner.run(main)
