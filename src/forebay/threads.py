"""Background threads. Whatever a thread's body raises is logged with its traceback, and somebody hears of it.

A thread that dies in silence is the worst of faults: what it did is simply not done any more. So no room starts a
thread by itself. One that has a single thing to do says who hears of a failure (`start`); one that works until it
is closed goes on after a failure (`keep_running`). docs/threads.md lists them all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from forebay.backoff import Backoff

log = logging.getLogger("forebay.threads")

WELL_S = 60.0  # a body that ran so long was well: its next failure is a first one again


def start(
    name: str, body: Callable[[], None], on_failure: Callable[[Exception], None], *, logged: bool = True
) -> threading.Thread:
    """Run the body once in a daemon thread; `on_failure` is given what it raises, in that thread.

    `logged=False` for a caller that raises it again where the user sees it.
    """

    def run() -> None:
        try:
            body()
        except Exception as error:
            if logged:
                log.exception("thread %s failed", name)
            try:
                on_failure(error)
            except Exception:
                log.exception("thread %s failed, and so did the report of it", name)

    return _started(name, run)


def keep_running(
    name: str,
    body: Callable[[], None],
    closed: threading.Event,
    on_failure: Callable[[Exception], None] = lambda error: None,
) -> threading.Thread:
    """Run the body in a daemon thread until it returns; one that raises is run again, after a wait that grows.

    `on_failure` hears of each failure. Setting `closed` ends the waiting.
    """

    def run() -> None:
        backoff = Backoff()
        while not closed.is_set():
            began = time.monotonic()
            try:
                body()
                break
            except Exception as error:
                log.exception("thread %s failed; it goes on", name)
                try:
                    on_failure(error)
                except Exception:
                    log.exception("thread %s failed, and so did the report of it", name)
                if time.monotonic() - began > WELL_S:
                    backoff.over()
                closed.wait(backoff.failed())

    return _started(name, run)


def _started(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
