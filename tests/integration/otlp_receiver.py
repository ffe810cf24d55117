"""A receiver of OTLP over HTTP: it decodes the protobuf that a collector would, and keeps it."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in of}


class OtlpReceiver:
    """Spans and metrics as they came, on a free port of this machine."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}  # the newest of each name
        self.resources: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, path: str, body: bytes) -> None:
        self.raw.append(body)
        if path == "/v1/traces":
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(each.resource.attributes))
                self.spans += [span for scope in each.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(attributes(each.resource.attributes))
                for scope in each.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    def of_trace(self, trace: str) -> dict[str, Any]:
        """The spans of one trace by their name; of several of one name the last."""
        return {span.name: span for span in list(self.spans) if span.trace_id.hex() == trace}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
