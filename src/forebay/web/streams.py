"""Server-sent events: what happens, and the changes of a view. A stream takes no thread while it waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from forebay.errors import ConnectorError, ForebayError
from forebay.web.backend import Backend
from forebay.web.failures import failure_of
from forebay.web.model import Changes, EventRow

MOST = 100  # streams of one server
LOOK_S = 1.0
QUIET_S = 15.0  # a comment now and then, so that nobody in between takes the connection for dead
EVENTS = 500


class Streams:
    """Counts them."""

    def __init__(self) -> None:
        self._open = 0
        self._lock = threading.Lock()

    def events(self, backend: Backend, timeout: float | None) -> Response:
        return self._response(_events(backend, timeout))

    def changes(self, backend: Backend, view: str, after: int | None, timeout: float | None) -> Response:
        return self._response(_changes(backend, view, after, timeout))

    def _response(self, body: AsyncIterator[bytes]) -> Response:
        with self._lock:
            if self._open >= MOST:
                raise ConnectorError(f"{MOST} streams are open", remedy="close some of them")
            self._open += 1
        return StreamingResponse(
            self._counted(body), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _counted(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for part in body:
                yield part
        finally:
            with self._lock:
                self._open -= 1


def _message(kind: str, data: Any) -> bytes:
    # JSON has no line breaks of its own, so data is one line.
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


async def _events(backend: Backend, timeout: float | None) -> AsyncIterator[bytes]:
    yield b": forebay\n\n"
    until = None if timeout is None else time.monotonic() + timeout
    seen: set[EventRow] | None = None
    last = ""
    while True:
        found = await run_in_threadpool(backend.events, EVENTS)
        for each in [] if seen is None else [row for row in reversed(found) if row not in seen]:
            yield _message("event", each)
        seen = set(found)
        overview = await run_in_threadpool(backend.overview)
        digest = repr((overview.nodes, overview.problems))
        if digest != last:
            yield _message("overview", overview)
            last = digest
        else:
            yield b": still here\n\n"
        if backend.closing.is_set() or (until is not None and time.monotonic() >= until):
            return
        await asyncio.sleep(LOOK_S)


async def _changes(
    backend: Backend, view: str, after: int | None, timeout: float | None
) -> AsyncIterator[bytes]:
    yield b": forebay\n\n"
    with backend.following(view):
        async for each in _changes_while_followed(backend, view, after, timeout):
            yield each


async def _changes_while_followed(
    backend: Backend, view: str, after: int | None, timeout: float | None
) -> AsyncIterator[bytes]:
    quiet = said = time.monotonic()
    position = await run_in_threadpool(backend.version, view) if after is None else after
    while True:
        try:
            found = await run_in_threadpool(_next, backend, view, position)
        except ForebayError as error:
            yield _message("error", failure_of(error))
            return
        now = time.monotonic()
        for changes in found:
            yield _message("change", changes)
            position = changes.version if changes.version is not None else position
            quiet = said = now
        if backend.closing.is_set() or (timeout is not None and now - quiet >= timeout):
            return
        if now - said >= QUIET_S:
            yield b": still here\n\n"
            said = now
        await asyncio.sleep(LOOK_S / 4)


def _next(backend: Backend, view: str, after: int) -> list[Changes]:
    return list(backend.tail(view, after, timeout=0))
