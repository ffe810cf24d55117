"""A guard in front of a real registry: asks for a password, a token or a certificate, and passes on the rest."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USER, PASSWORD, TOKEN = "reader", "correct: horse", "a-token"
HOST = "127.0.0.1"


def certificate(folder: Path, name: str, key_password: str = "") -> tuple[Path, Path]:
    """A key and a certificate that signs itself, for 127.0.0.1, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = (
        serialization.BestAvailableEncryption(key_password.encode())
        if key_password
        else serialization.NoEncryption()
    )
    pem, private = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    )
    return pem, private


@contextmanager
def guard(registry: str, wanted: str = "", tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of the guard. `wanted` is the Authorization header that it asks for."""
    behind = urlsplit(registry)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if wanted and self.headers.get("Authorization") != wanted:
                self._answer(401, b'{"error_code": 401, "message": "who are you?"}')
                return
            connection = http.client.HTTPConnection(str(behind.hostname), behind.port, timeout=10)
            connection.request("GET", self.path)
            found = connection.getresponse()
            self._answer(found.status, found.read())
            connection.close()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A handshake that fails is what some tests are about."""

    server = Server((HOST, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scheme = "https" if tls else "http"
    try:
        yield f"{scheme}://{HOST}:{server.server_port}{behind.path}"
    finally:
        server.shutdown()
        server.server_close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
