"""The pages of the dashboard, with NiceGUI. `attach` puts them on the server's application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from nicegui import core, ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.web.backend import Backend
from forebay.web.pages import (
    audit,
    board,
    events,
    group,
    letters,
    overview,
    pools,
    source,
    sources,
    topic,
    topics,
    view,
    views,
    worksheet,
)
from forebay.web.pages.frame import Face
from forebay.web.pages.parts import STATIC
from forebay.web.pages.policy import use_nonces

Page = Callable[..., Awaitable[None]]

_PLAIN: dict[str, Page] = {
    "/": overview.show, "/sources": sources.show, "/letters": letters.show, "/letters/group": group.show, "/views": views.show,
    "/view": view.show, "/source": source.show, "/sql": worksheet.show, "/topics": topics.show, "/topic": topic.show,
    "/pools": pools.show, "/agents": board.show, "/events": events.show, "/audit": audit.show,
}  # fmt: skip


def attach(app: FastAPI, backend: Backend) -> None:
    """Put the pages on an application, after all of its own routes: they are mounted at the root."""
    use_nonces()
    app.mount("/static", _Files(directory=STATIC), name="static")
    for path, show in _PLAIN.items():
        ui.page(path, response_timeout=20)(_page(show, backend))
    # NiceGUI's application is one a process. A server that was there before has built its middleware.
    core.app.middleware_stack = None
    core.app.user_middleware.clear()
    ui.run_with(
        app, title="Forebay", favicon=STATIC / "mark.svg", dark=None, language="en-US", tailwind=False, reconnect_timeout=20,
        binding_refresh_interval=None, show_welcome_message=False, gzip_middleware_factory=_gzip,
    )  # fmt: skip


def _page(show: Page, backend: Backend) -> Callable[..., Any]:
    known = set(inspect.signature(show).parameters)

    async def page(request: Request) -> None:
        asked = {name: value for name, value in request.query_params.items() if name in known - {"face"}}
        await show(Face(backend, request), **asked)

    return page


class _Files(StaticFiles):
    """A file that is asked for by its digest is never another one."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if scope.get("query_string") and answer.status_code == 200:
            answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer


class _Gzip(GZipMiddleware):
    """Compresses what leaves the machine. On the machine itself it only takes time from the pipeline."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = (scope.get("client") or ("",))[0]
        if host in ("127.0.0.1", "::1"):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _gzip(app: ASGIApp) -> GZipMiddleware:
    return _Gzip(app, minimum_size=1000, compresslevel=4)
