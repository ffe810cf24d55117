"""An event loop for pools: one whose timers are exact, and cheap.

asyncio waits in `epoll`, which counts whole milliseconds and is asked to round up: a handler that waits 5 ms waits up
to 6, and a hundred of them lose a tenth of what they could do. `select` on the epoll's own descriptor waits for
microseconds, and is asked to end a little early, because whoever sleeps is woken late. And asyncio compares its timers in
Python, some ten times for each one that is set: half of what a short wait costs. Timers that are numbers are compared in C.
"""

from __future__ import annotations

import asyncio
import heapq
import select
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from time import monotonic
from typing import Any

SHORT_S = 0.02  # a wait that is longer than this may as well be rounded
LATE_S = 0.00012  # about how late whoever sleeps is woken, and with it all that is due right behind
SELECT_FDS = 1024  # select() knows no more


class ExactSelector(selectors.EpollSelector):
    """Short waits end when they should."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        number = self.fileno()
        if timeout is None or not 0 < timeout < SHORT_S or number >= SELECT_FDS:
            return super().select(timeout)
        due = monotonic() + timeout
        if timeout > LATE_S:
            select.select((number,), (), (), timeout - LATE_S)
        while not (found := super().select(0)) and monotonic() < due:
            pass
        return found


class Timer(float):
    """A `TimerHandle` in all that the loop and its users look at, and the time itself in what `heapq` looks at."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_loop", "_scheduled")

    _args: Any
    _callback: Any
    _cancelled: bool
    _context: Context
    _loop: Any
    _scheduled: bool

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)
            self._callback = self._args = None  # what they hold on to is free

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return float(self)

    @property
    def _when(self) -> float:
        return float(self)

    def _run(self) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {
                "message": f"Exception in callback {self._callback!r}",
                "exception": error,
                "handle": self,
            }
            self._loop.call_exception_handler(context)


class PoolLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop in everything else."""

    def __init__(self) -> None:
        super().__init__(ExactSelector())

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        timer = Timer(when)
        timer._callback = callback
        timer._args = args
        timer._context = copy_context() if context is None else context
        timer._loop = self
        timer._cancelled = False
        timer._scheduled = True
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        return timer


def run(main: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`."""
    with asyncio.Runner(loop_factory=PoolLoop) as runner:
        runner.run(main)
