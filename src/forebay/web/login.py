"""The login page: a form without a script, and the cookie that it sets."""

from __future__ import annotations

import logging
from html import escape
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from forebay.web.access import LOGIN_S, Access
from forebay.web.safety import address_of, cookie_name

log = logging.getLogger("forebay.web")

LARGEST = 10_000

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Forebay</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 100vh; margin: 0; }}
form {{ display: grid; gap: .75rem; width: min(22rem, 90vw); }}
h1 {{ font-size: 1.25rem; margin: 0; }}
input, button {{ font: inherit; padding: .6rem; }}
.wrong {{ color: #b3261e; }}
</style></head>
<body><main><form method="post" action="/login">
<h1>Forebay</h1>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{next}">
{wrong}
<button type="submit">Log in</button>
<p>Who started the dashboard has the token: it was printed, or is in the file that was named.</p>
</form></main></body></html>
"""


def add_login(app: FastAPI, access: Access, port: int) -> None:
    """`/login` and `/logout`."""

    @app.get("/login", include_in_schema=False)
    def page(next: str = "/") -> Response:
        return _page(next)

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        body = (await request.body())[:LARGEST].decode("utf-8", "replace")
        given = parse_qs(body)
        place = _local(given.get("next", ["/"])[0])
        address = address_of(request.scope)
        if access.required and access.is_guessing(address):
            return _page(
                place, "Too many wrong tokens came from this address. Wait a minute, and try again.", 429
            )
        if access.required and not access.is_token(given.get("token", [""])[0].strip()):
            access.failed(address)
            log.warning("event=login_refused address=%s", address)
            return _page(place, "This is not the token.", 401)
        answer = RedirectResponse(place, 303)
        if access.required:
            answer.set_cookie(
                cookie_name(port),
                access.login(),
                max_age=int(LOGIN_S),
                path="/",
                secure=request.state.tls,
                httponly=True,
                samesite="strict",
            )
        return answer

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> Response:
        access.logout(request.cookies.get(cookie_name(port), ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie_name(port), path="/", httponly=True, samesite="strict")
        return answer


def _page(place: str, wrong: str = "", status: int = 200) -> Response:
    words = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
    return HTMLResponse(_PAGE.format(next=escape(_local(place), quote=True), wrong=words), status)


def _local(place: str) -> str:
    """A path of this server, and of no other: `//host` and `/\\host` are others to a browser."""
    good = place.startswith("/") and not place.startswith(("//", "/\\")) and place.isprintable()
    return place if good else "/"
