"""`/metrics` on a port, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from forebay.errors import OptionValueError


class MetricsServer:
    """Serves one collector until it is closed. Port 0 is one that is free: `port` says which."""

    def __init__(self, collector: Collector, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, registry=registry)
        except OSError as error:
            raise OptionValueError(
                f"metrics cannot be served on port {port}: {error.strerror}",
                option="metrics.port",
                remedy="name another port; 0 is one that is free",
            ) from None
        self.port: int = self._server.server_port

    @property
    def address(self) -> str:
        return f"http://localhost:{self.port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
