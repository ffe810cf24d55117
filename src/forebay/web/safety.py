"""What every request passes before anybody answers it: whose page it is of, who sends it, and what a browser may do with the answer.

- **Host**: a name that is none of ours, and none of `--public-url`, is refused. A page of another name that has been made to
  point here (DNS rebinding) could otherwise read all that a browser of this machine can.
- **Origin**: what changes something, and every websocket, must come from a page of ours, or carry what no page of another
  origin can send: a bearer token, or the header `X-Forebay-Request`.
- **Site**: a browser says who asks (`Sec-Fetch-Site`). A page of another site, or of another port of this machine, may link
  here, and may not load anything from here.
- **Token**: where one is required, all but the login page and `/healthz`, `/readyz` need it, as a login's cookie or a bearer.
- **Answers**: no script but those with the answer's nonce, no frames, no sniffing, nothing kept in caches.

The content policy has `'unsafe-eval'`: NiceGUI's client compiles Vue templates in the browser and evaluates handlers that its
server sends, and does not start without. What is evaluated comes over a websocket of ours, whose origin is checked; text of
records is set as text and never compiled. `style-src` has `'unsafe-inline'`, because Quasar places elements by style attributes.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from starlette.requests import cookie_parser

from forebay.errors import ForebayError, NotLoggedInError, RefusedRequestError, UnexpectedError
from forebay.web.access import LOOPBACK, Access
from forebay.web.failures import failure_of, status_of
from forebay.web.public import PublicUrl

log = logging.getLogger("forebay.web")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz", "/login")  # say nothing that a stranger may not know
PROBES = ("/healthz", "/readyz")  # asked by machines that know an address and no name
SAFE = ("GET", "HEAD", "OPTIONS")  # whatever else there is may change something
OURS = (
    b"x-forebay-request"  # a page of another origin cannot send it without asking first, and is not answered
)
ACTOR = b"x-forebay-actor"
LARGEST = 8 << 20  # bytes of a request
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


def cookie_name(port: int) -> str:
    """Cookies do not tell ports apart, and several dashboards may run on one machine."""
    return f"forebay_{port}"


def headers_for(nonce: str) -> list[tuple[bytes, bytes]]:
    """Of every answer."""
    policy = (
        "default-src 'none'; "
        f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
        "worker-src 'self' blob:; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ]


class Safety:
    """Middleware around the whole application, websockets included."""

    def __init__(
        self, app: App, access: Access, host: str, port: int, public: Sequence[PublicUrl] = ()
    ) -> None:
        self._app = app
        self._access = access
        self._port = port
        self._public = public
        self._any = host in ANY_ADDRESS
        self._names = {*LOOPBACK, host.lower()}
        if self._any:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})
        scope["state"]["nonce"] = nonce
        try:
            self._check(scope)
        except ForebayError as error:
            await self._refuse(scope, receive, send, error, nonce)
            return
        if scope["type"] == "websocket":
            await self._app(scope, self._while_let_in(scope, receive), send)
            return
        await self._serve(scope, _bounded(receive), send, nonce)

    # -- requests ------------------------------------------------------------------------------------------

    def _check(self, scope: Scope) -> None:
        headers = _Headers(scope["headers"])
        path = str(scope["path"])
        host = headers.one(b"host")
        if path not in PROBES and not self._is_ours(host):
            raise RefusedRequestError(
                "this dashboard is not known by the name that it was asked by",
                remedy="use the address that it printed when it was started; one of your own, such as that of a proxy, is given "
                "to it as --public-url (of run and pool run: --ui-public-url)",
            )
        scope["state"]["tls"] = path not in PROBES and self._is_by_tls(host, headers.one(b"origin"))
        bearer = _bearer(headers.one(b"authorization"))
        if bearer is not None and self._access.is_guessing(address_of(scope)):
            raise NotLoggedInError(
                "too many wrong tokens came from this address", remedy="wait a minute, and try again"
            )
        authorized = bearer is not None and self._access.is_token(bearer)
        if scope["type"] == "websocket" or scope.get("method") not in SAFE:
            self._check_origin(scope, headers, host, authorized)
        elif path not in PROBES:
            _check_site(headers)
        length = headers.one(b"content-length")
        if length is not None and not _is_small(length):
            raise RefusedRequestError(
                f"a request of more than {LARGEST:,} bytes", remedy="send less at a time"
            )
        if not self._access.required:
            scope["state"]["actor"] = _actor("local", headers)
            return
        login = _cookie(headers, cookie_name(self._port))
        if authorized:
            scope["state"]["actor"] = _actor("token", headers)
        elif bearer is not None:
            self._access.failed(address_of(scope))
            raise NotLoggedInError("this is not the token")
        elif login is not None and self._access.is_login(login):
            scope["state"]["actor"] = _actor("login", headers)
            scope["state"]["login"] = login
        elif path not in OPEN:
            raise NotLoggedInError("a token is needed")

    def _is_ours(self, host: str | None) -> bool:
        if host is None:
            return False
        try:
            split = urlsplit(f"//{host}")
            name, port = (split.hostname or "").lower(), split.port
        except ValueError:
            return False
        if any(each.has_host(name, port, self._port) for each in self._public):
            return True
        if port not in (None, self._port) and not self._any:
            return False
        return name in self._names or (self._any and _is_address(name))

    def _is_by_tls(self, host: str | None, origin: str | None) -> bool:
        """Whether a browser came by an address with TLS: it may keep a cookie for such addresses alone. A proxy may have put
        our own address into Host; the origin is the browser's."""
        split = urlsplit(f"//{host or ''}")
        return any(
            each.has_origin(origin)
            if origin is not None
            else each.has_host((split.hostname or "").lower(), split.port, self._port)
            for each in self._public
            if each.scheme == "https"
        )

    def _check_origin(self, scope: Scope, headers: _Headers, host: str | None, authorized: bool) -> None:
        origin = headers.one(b"origin")
        if origin is None:
            if authorized or OURS in headers:
                return
            raise RefusedRequestError(
                "a request that changes something must say that no other page has made it",
                remedy="send the header X-Forebay-Request: 1, or Authorization: Bearer …",
            )
        if any(each.has_origin(origin) for each in self._public):
            return
        try:
            split, asked = urlsplit(origin), urlsplit(f"//{host or ''}")
            same = split.netloc.lower() == asked.netloc.lower() and split.scheme in ("http", "https")
            public = any(
                each.has_host((asked.hostname or "").lower(), asked.port, self._port) for each in self._public
            )
        except ValueError:
            same, public = False, True
        # By a public address its own pages alone: a page of the same name without TLS may be anybody's.
        if not same or public:
            raise RefusedRequestError("a page of another origin has made this request")

    def _while_let_in(self, scope: Scope, receive: Receive) -> Receive:
        """A websocket lives for hours: it ends with the login that it was opened with."""
        login = scope["state"].get("login")

        async def received() -> MutableMapping[str, Any]:
            message = await receive()
            if login is not None and not self._access.is_login(login):
                return {"type": "websocket.disconnect", "code": 1008, "reason": "the login is over"}
            return message

        return received

    # -- answers -------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send, nonce: str) -> None:
        begun = False

        async def guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                static = _is_static(str(scope["path"]))
                kept = _without_ours(message.get("headers", ()), caches=static)
                more = [] if static else [(b"cache-control", b"no-store")]
                message = {**message, "headers": [*kept, *headers_for(nonce), *more]}
            await send(message)

        try:
            await self._app(scope, receive, guarded)
        except ForebayError as error:
            if begun:
                raise
            await self._refuse(scope, receive, send, error, nonce)
        except Exception as error:
            if begun:
                raise
            log.exception("a request failed in a way that nobody foresaw")
            await self._refuse(scope, receive, send, UnexpectedError(type(error).__name__), nonce)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, error: ForebayError, nonce: str
    ) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
            return
        headers = _Headers(scope["headers"])
        if isinstance(error, NotLoggedInError) and "text/html" in (headers.one(b"accept") or ""):
            asked = bytes(scope.get("query_string", b"")).decode("latin-1")
            place = quote(f"{scope['path']}?{asked}" if asked else str(scope["path"]), safe="/")
            await _answer(
                send, 303, b"", [(b"location", f"/login?next={place}".encode()), *headers_for(nonce)]
            )
            return
        body = orjson.dumps({"error": failure_of(error)})
        more = [(b"www-authenticate", b"Bearer")] if isinstance(error, NotLoggedInError) else []
        kind = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await _answer(send, status_of(error), body, [*kind, *more, *headers_for(nonce)])


async def _answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


class _Headers:
    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._pairs = [(name.lower(), value) for name, value in pairs]

    def one(self, name: bytes) -> str | None:
        """The value of a header that there is once; of one that is there twice nobody knows which is meant."""
        found = [value for each, value in self._pairs if each == name]
        if len(found) > 1:
            raise RefusedRequestError(f"a request with more than one {name.decode()} header")
        return found[0].decode("latin-1") if found else None

    def all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for each, value in self._pairs if each == name]

    def __contains__(self, name: bytes) -> bool:
        return any(each == name for each, _ in self._pairs)


def _bounded(receive: Receive) -> Receive:
    """A body that says nothing of its length, or a wrong one, ends at the bound."""
    taken = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST:
            raise RefusedRequestError(
                f"a request of more than {LARGEST:,} bytes", remedy="send less at a time"
            )
        return message

    return bounded


def _without_ours(headers: Iterable[tuple[bytes, bytes]], *, caches: bool) -> list[tuple[bytes, bytes]]:
    ours = {name for name, _ in headers_for("")} | (set() if caches else {b"cache-control"})
    return [(name, value) for name, value in headers if name.lower() not in ours]


def _is_static(path: str) -> bool:
    """Files of the pages, which are named by their version."""
    return path.startswith(("/_nicegui/", "/static/"))


def _check_site(headers: _Headers) -> None:
    site, mode = headers.one(b"sec-fetch-site"), headers.one(b"sec-fetch-mode")
    if site in ("cross-site", "same-site") and mode != "navigate":
        raise RefusedRequestError("a page of another origin has made this request")


def _is_small(length: str) -> bool:
    return length.isascii() and length.isdecimal() and len(length) < 20 and int(length) <= LARGEST


def address_of(scope: Scope) -> str:
    """Who is at the other end of the connection."""
    return str((scope.get("client") or ("",))[0])


def _bearer(value: str | None) -> str | None:
    scheme, _, token = (value or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _cookie(headers: _Headers, name: str) -> str | None:
    for text in headers.all(b"cookie"):
        # As browsers write them: a cookie of another server on this machine that is odd does not hide ours.
        if (found := cookie_parser(text).get(name)) is not None:
            return found
    return None


def _actor(kind: str, headers: _Headers) -> str:
    """Who is written down. A name that a request gives itself is a hint beside how it was let in."""
    names = headers.all(ACTOR)
    name = "".join(char for char in names[0] if char.isprintable())[:64].strip() if names else ""
    return f"{kind}: {name}" if name else kind


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
