"""Handlers as users write them, made into what a worker awaits."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import copy_context
from functools import partial
from multiprocessing import get_context
from typing import Any

from forebay.errors import OptionConflictError
from forebay.options import Options
from forebay.pool.handler_threads import DaemonThreads

log = logging.getLogger("forebay.pool")

Handler = Callable[[Any], Any]
Awaited = Callable[[Any], Awaitable[Any]]


class Adapted:
    """A handler that can be awaited, and what has to be closed behind it."""

    def __init__(self, handler: Handler, options: Options) -> None:
        self._executor: Executor | None = None
        self._plain = handler
        self._processes: int | None = options["processes"]
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with `async def __call__`
        ):
            if self._processes:
                raise OptionConflictError(
                    "'processes' is for plain functions, and the handler is an async one",
                    option="processes",
                    remedy="leave 'processes' out, or write the handler as def",
                )
            self.call: Awaited = handler
        elif self._processes:
            self._executor = self._new_processes()
            self.call = self._in_process
        else:
            self._executor = DaemonThreads(options["workers"])
            self.call = self._in_thread

    async def _in_thread(self, given: Any) -> Any:
        work = partial(copy_context().run, self._plain, given)  # spans know where they are
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _in_process(self, given: Any) -> Any:
        executor = self._executor
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, self._plain, given)
        except BrokenProcessPool as error:
            if self._executor is executor:  # the first to notice
                log.warning("a process of the pool has died; its records are tried again in new ones")
                self._executor = self._new_processes()
            raise RuntimeError("the process that handled it has died") from error

    def _new_processes(self) -> ProcessPoolExecutor:
        # Not forked: a Kafka client does not survive that.
        return ProcessPoolExecutor(self._processes, mp_context=get_context("spawn"))

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
