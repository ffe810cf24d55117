"""What is at an address: asked step by step, after the client library has failed there.

Resolve the name, connect, say a few bytes of Kafka's protocol. The library says "Disconnected" of a listener that wants
TLS, of one that wants a login and of a broker that stops, and nothing at all of one that never answers.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from forebay import threads

LIMIT_S = 2.5  # for one address: well within the five seconds that a person waits
NUDGE_S = 1.0  # who has not answered by then may wait for something else
_API_VERSIONS, _SASL_HANDSHAKE = 18, 17
_ILLEGAL_SASL_STATE = 34  # what a listener without logins says to somebody who wants to log in
_WEB = ("HTTP", "<!DO", "<HTM")  # how web servers begin to answer who does not speak HTTP
_LONGEST = 1 << 20  # of an answer; more is no Kafka


class At(StrEnum):
    """What was found at an address."""

    UNRESOLVED = "unresolved"  # the name has no address
    REFUSED = "refused"  # nothing listens
    UNCONNECTED = "unconnected"  # no answer to the attempt to connect
    SILENT = "silent"  # accepts the connection, and answers nothing
    CLOSED = "closed"  # accepts the connection, and closes it
    HTTP = "http"  # a web server
    OTHER = "other"  # answers, but not as Kafka does
    KAFKA = "kafka"


@dataclass(frozen=True)
class Probed:
    """`tls` and `mechanisms` are of a Kafka listener: none if it asks for no login, None if that is not known."""

    server: str
    at: At
    reason: str = ""
    tls: bool = False
    mechanisms: Sequence[str] | None = None
    distrust: str = field(default="", compare=False)  # why its certificate is not trusted
    wrong_name: bool = False  # ... which is that it is for another name


class Probe:
    """Asks in threads of its own, one for each address, and ends by itself."""

    def __init__(self, servers: Sequence[str], settings: Mapping[str, Any]) -> None:
        self._found: dict[str, Probed] = {}
        self._steps = {
            server: Probed(server, At.UNRESOLVED, "no answer from the name server") for server in servers
        }
        self._done = {server: threading.Event() for server in servers}
        for server in servers:
            threads.start(
                "forebay-probe", partial(self._ask, server, dict(settings)), self._failed, logged=False
            )

    @property
    def done(self) -> bool:
        return all(event.is_set() for event in self._done.values())

    def found(self, wait_s: float = 0.0) -> list[Probed]:
        """What is known after so long; of an address that still keeps us waiting, where it does."""
        deadline = time.monotonic() + wait_s
        for event in self._done.values():
            event.wait(max(0.0, deadline - time.monotonic()))
        return [self._found.get(server, step) for server, step in self._steps.items()]

    def _ask(self, server: str, settings: Mapping[str, Any]) -> None:
        try:
            self._found[server] = _look(server, settings, lambda step: self._steps.__setitem__(server, step))
        finally:
            self._done[server].set()

    def _failed(self, error: Exception) -> None:
        pass  # then nothing is known but what the library said


def _look(server: str, settings: Mapping[str, Any], on_step: Callable[[Probed], None]) -> Probed:
    deadline = time.monotonic() + LIMIT_S
    host, port = split(server)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Probed(server, At.UNRESOLVED, getattr(error, "strerror", None) or str(error))
    on_step(Probed(server, At.UNCONNECTED))
    tls_first = "SSL" in str(settings.get("security.protocol", "")).upper()
    found = _speak(server, addresses, settings, deadline, tls=tls_first)
    if found.at in (At.CLOSED, At.OTHER, At.HTTP):
        # Each kind of listener hangs up on who speaks the other.
        other = _speak(server, addresses, settings, deadline, tls=not tls_first)
        if other.at in (At.KAFKA, At.HTTP):
            return other
    return found


def _speak(
    server: str, addresses: Sequence[Any], settings: Mapping[str, Any], deadline: float, *, tls: bool
) -> Probed:
    found = Probed(server, At.REFUSED)
    for family, kind, number, _, address in addresses:
        with socket.socket(family, kind, number) as plain:
            try:
                plain.settimeout(_left(deadline))
                plain.connect(address)
            except TimeoutError:
                return Probed(server, At.UNCONNECTED)
            except OSError as error:
                found = Probed(server, At.REFUSED, error.strerror or str(error))
                continue
            try:
                return _converse(server, plain, settings, deadline, tls=tls)
            except TimeoutError:
                return Probed(server, At.SILENT)
            except OSError as error:  # also what ssl raises
                return Probed(server, At.CLOSED, error.strerror or str(error))
    return found


def _converse(
    server: str, plain: socket.socket, settings: Mapping[str, Any], deadline: float, *, tls: bool
) -> Probed:
    if not tls:
        return _kafka(server, plain, settings, deadline)
    host, _ = split(server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only to see who is there
    plain.settimeout(_left(deadline))
    with context.wrap_socket(plain, server_hostname=host) as secure:
        try:
            found = _kafka(server, secure, settings, deadline)
        except TimeoutError:
            raise
        except OSError as error:
            # Whoever wants a certificate of ours ends the connection here; it has spoken TLS all the same.
            found = Probed(server, At.CLOSED, error.strerror or str(error))
    if found.at in (At.HTTP, At.OTHER):
        return found
    distrust, wrong_name = _trust(server, settings, deadline)
    return Probed(server, At.KAFKA, found.reason, True, found.mechanisms, distrust, wrong_name)


def _kafka(server: str, peer: socket.socket, settings: Mapping[str, Any], deadline: float) -> Probed:
    try:
        answer = _ask(peer, _API_VERSIONS, 0, b"", min(deadline, time.monotonic() + NUDGE_S))
    except TimeoutError:
        # A web server waits for the end of a line.
        peer.settimeout(_left(deadline))
        peer.sendall(b"\r\n\r\n")
        answer = _answer(peer, _API_VERSIONS, deadline)
    if answer is None:
        return Probed(server, At.CLOSED)
    if isinstance(answer, str):
        return Probed(server, At.HTTP if answer.upper() in _WEB else At.OTHER)
    mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "PLAIN").encode()
    answer = _ask(peer, _SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism, deadline)
    if not isinstance(answer, bytes) or len(answer) < 6:
        return Probed(server, At.KAFKA)
    code, count = struct.unpack_from(">hi", answer)
    offered, rest = [], answer[6:]
    for _ in range(min(count, 20) if code != _ILLEGAL_SASL_STATE else 0):
        length = int.from_bytes(rest[:2], "big")
        offered.append(rest[2 : 2 + length].decode(errors="replace"))
        rest = rest[2 + length :]
    return Probed(server, At.KAFKA, mechanisms=tuple(offered))


def _ask(peer: socket.socket, key: int, version: int, body: bytes, deadline: float) -> bytes | str | None:
    client = b"forebay"
    request = struct.pack(">hhih", key, version, key, len(client)) + client + body
    peer.settimeout(_left(deadline))
    peer.sendall(struct.pack(">i", len(request)) + request)
    return _answer(peer, key, deadline)


def _answer(peer: socket.socket, key: int, deadline: float) -> bytes | str | None:
    """An answer's body; the first letters of what is no answer; None if the connection was closed."""
    head = _read(peer, 8, deadline)
    if not head:
        return None
    size, correlation = struct.unpack(">ii", head) if len(head) == 8 else (0, 0)
    if correlation != key or not 4 <= size <= _LONGEST:
        return "" if head[:2] == b"\x15\x03" else head[:4].decode(errors="replace")  # the former: a TLS alert
    return _read(peer, size - 4, deadline)


def _read(peer: socket.socket, count: int, deadline: float) -> bytes:
    found = b""
    while len(found) < count:
        peer.settimeout(_left(deadline))
        more = peer.recv(count - len(found))
        if not more:
            break
        found += more
    return found


def _trust(server: str, settings: Mapping[str, Any], deadline: float) -> tuple[str, bool]:
    """Why the listener's certificate is not trusted, if it is not, and whether that is for its name alone."""
    try:
        context = _context(settings)
    except (OSError, ValueError):
        return "", False  # the library has said what is wrong with its files
    host, port = split(server)
    try:
        plain = socket.create_connection((host, port), _left(deadline))
        with plain, context.wrap_socket(plain, server_hostname=host):
            return "", False
    except ssl.SSLCertVerificationError as error:
        # 62 and 64: the certificate is good, but for another name, or for another IP address.
        return error.verify_message, error.verify_code in (62, 64)
    except OSError:
        return "", False


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """As the library checks: against the authorities that were given, or against the system's."""
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    place = None if location in (None, "probe") else Path(str(location))
    context = ssl.create_default_context(
        cafile=place if place and not place.is_dir() else None,
        capath=place if place and place.is_dir() else None,
        cadata=pem or None,
    )
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def split(server: str) -> tuple[str, int]:
    """Host and port; the port is 9092 unless it is there."""
    server = server.rpartition("://")[2]
    host, separator, port = server.rpartition(":")
    if not separator or not port.isdigit():
        return server.strip("[]"), 9092
    return host.strip("[]"), int(port)
