"""Threads for plain handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

from forebay.threads import start

_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DaemonThreads(Executor):
    """The standard library's executor waits for its threads when the program ends, and so for a handler that hangs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            start(f"forebay-pool-{self._started + 1}", self._work, self._lost)
            self._started += 1
        self._jobs.put((future, function, args))
        return future

    def _lost(self, error: Exception) -> None:
        """A thread has ended, though what a function raises is its caller's: the next job has another one."""
        self._started -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Each thread ends after what it is at; none is waited for."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            future, function, args = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args))
                except BaseException as error:
                    future.set_exception(error)
            del job, future, args  # nothing of a record is kept while the thread waits
            self._idle.release()
