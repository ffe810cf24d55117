"""`/metrics` on a port, for Prometheus."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from forebay.errors import OptionValueError
from forebay.telemetry import LOOPBACK
from forebay.threads import keep_running

log = logging.getLogger("forebay.telemetry")


class MetricsServer:
    """Serves one collector until it is closed. Port 0 is one that is free: `port` says which.

    `close()` may block for half a second.
    """

    def __init__(self, collector: Collector, port: int, host: str = LOOPBACK) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            family, _, _, _, _ = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            server = type("_Server", (_Server,), {"address_family": family})
            self._server: WSGIServer = make_server(host, port, _app(registry), server, handler_class=_Handler)
        except socket.gaierror as error:
            raise OptionValueError(
                f"metrics cannot be served on host '{host}': {error.strerror}",
                option="metrics.host",
                remedy=f"name an address of this machine, such as {LOOPBACK}, or 0.0.0.0 for all of them",
            ) from None
        except OSError as error:
            raise OptionValueError(
                f"metrics cannot be served on port {port} of {host}: {error.strerror}",
                option="metrics.port",
                remedy="name another port; 0 is one that is free",
            ) from None
        self.host = host
        self.port: int = self._server.server_port
        self._closed = threading.Event()
        self._thread = keep_running("forebay-metrics", self._server.serve_forever, self._closed)

    @property
    def address(self) -> str:
        host = "localhost" if self.host in ("0.0.0.0", "::", "", LOOPBACK) else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request: one that is slow keeps nobody else waiting."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("a request for metrics from %s broke off", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Each scrape in the log would say nothing."""


def _app(registry: CollectorRegistry) -> Any:
    serve = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return serve(environ, start_response)  # type: ignore[no-any-return]
        except Exception:
            log.exception("metrics could not be collected")
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"metrics could not be collected; the log says why\n"]

    return app
