"""The server: uvicorn in a thread, with the API and the pages, behind what keeps strangers out."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import uvicorn

from forebay import threads
from forebay.errors import OptionValueError
from forebay.web.access import Access, is_loopback, new_token
from forebay.web.api import make_app
from forebay.web.backend import Backend
from forebay.web.login import add_login
from forebay.web.public import PublicUrl, any_from_elsewhere
from forebay.web.safety import ANY_ADDRESS, Safety

log = logging.getLogger("forebay.web")

PORT = 8420
START_S = 30.0
CLOSE_S = 5.0


class Dashboard:
    """Serves a backend from its making until it is closed; the backend is closed with it.

    Port 0 is one that is free: `port` says which. On another address than this machine's own a token is required: where none is
    given, one is made, and `made_token` has it once. So it is where `public` names an address that others come by.
    """

    def __init__(
        self,
        backend: Backend,
        host: str = "127.0.0.1",
        port: int = PORT,
        *,
        token: str | None = None,
        public: Sequence[str] = (),
        pages: bool = True,
    ) -> None:
        self.backend = backend
        self.host = host
        self.made_token: str | None = None
        self.public = tuple(PublicUrl.of(each) for each in public)
        if token is None and (not is_loopback(host) or any_from_elsewhere(self.public)):
            token = self.made_token = new_token()
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.access = Access.with_token(token)
        app = make_app(backend)
        add_login(app, self.access, self.port)
        if pages:
            from forebay.web.pages import attach

            attach(app, backend)
        self.app: Any = Safety(app, self.access, host, self.port, self.public)
        self._failed: list[Exception] = []
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app, log_config=None, log_level="warning", access_log=False, server_header=False,
                date_header=False, timeout_graceful_shutdown=2, ws_max_size=8 << 20, proxy_headers=False,
            )
        )  # fmt: skip
        self._thread = threads.start("forebay-ui", self._run, self._failed.append)
        self._await_start()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it."""
        host = "localhost" if self.host in (*ANY_ADDRESS, "127.0.0.1", "::1") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop answering; streams that are open end. May take some seconds."""
        self.backend.closing.set()
        self._server.should_exit = True
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(CLOSE_S)
        self._socket.close()
        self.backend.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def _await_start(self) -> None:
        waiting = threading.Event()
        for _ in range(int(START_S / 0.02)):
            if self._server.started:
                return
            if self._failed or not self._thread.is_alive():
                break
            waiting.wait(0.02)
        self.close()
        reason = self._failed[0] if self._failed else "it did not start"
        raise OptionValueError(f"the dashboard cannot be served on {self.host}: {reason}", option="host")


def _bound(host: str, port: int) -> socket.socket:
    """Listening begins here, so that an address or a port that is no good is said at once."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except socket.gaierror as error:
        raise OptionValueError(
            f"the dashboard cannot be served on host '{host}': {error.strerror}",
            option="host",
            remedy="name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them",
        ) from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise OptionValueError(
            f"the dashboard cannot be served on port {port} of {host}: {error.strerror}",
            option="port",
            remedy="name another port: --port 8421; 0 is one that is free",
        ) from None
    made.listen(128)
    return made
