"""A broker of one topic that answers as a test says: for what a real one cannot be made to answer on demand.

It speaks as much of Kafka's protocol as reading a range takes, in the versions that `versions` lists, and writes down
every request. `on_fetch` replaces its answer to a fetch; `errors` makes an API answer with an error's number.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

PRODUCE, FETCH, LIST_OFFSETS, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 1, 2, 3, 17, 18, 36
VERSIONS = {
    PRODUCE: (0, 7),
    FETCH: (4, 11),
    LIST_OFFSETS: (1, 2),
    METADATA: (0, 4),
    HANDSHAKE: (0, 1),
    API_VERSIONS: (0, 0),
    AUTHENTICATE: (0, 0),
}
UNSUPPORTED_VERSION = 35


@dataclass(frozen=True)
class Fetch:
    """What a fetch asks for, and how many of this offset came before it."""

    offset: int
    before: int


@dataclass(frozen=True)
class Answer:
    """What a fetch is answered with. `high` is the log's end unless given; `raw` replaces the whole answer."""

    records: bytes = b""
    error: int = 0
    high: int | None = None
    raw: bytes | None = None


@dataclass
class ProtocolServer:
    """Use as a context manager. `log` is (offset after the batch, its bytes), in order."""

    topic: str = "t"
    log: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    versions: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(VERSIONS))
    errors: dict[int, int] = field(default_factory=dict)
    on_fetch: Callable[[Fetch], Answer | None] = lambda fetch: None
    on_produce: Callable[[], int] = lambda: 0
    requests: list[tuple[float, int]] = field(default_factory=list)
    """(when, which API), of all that came."""

    def __enter__(self) -> ProtocolServer:
        self._asked: dict[int, int] = {}
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):  # who is gone already
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def high(self) -> int:
        return self.end if self.end is not None else max((after for after, _ in self.log), default=self.start)

    def count(self, api: int | None = None) -> int:
        return sum(api is None or api == found for _, found in self.requests)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while len(size := stream.read(4)) == 4:
                    request = Reader(stream.read(*struct.unpack(">i", size)))
                    api, version, number = request.i16(), request.i16(), request.i32()
                    request.text()
                    self.requests.append((time.monotonic(), api))
                    answer = struct.pack(">i", number) + self._answer(api, version, request)
                    connection.sendall(struct.pack(">i", len(answer)) + answer)
            except OSError:
                return

    def _answer(self, api: int, version: int, request: Reader) -> bytes:
        low, high = self.versions.get(api, (0, -1))
        if api == API_VERSIONS:
            # A client that asks in a newer version is answered in the oldest, and asks again.
            error = self.errors.get(api, 0 if low <= version <= high else UNSUPPORTED_VERSION)
            return i16(error) + listed(i16(key) + i16(a) + i16(b) for key, (a, b) in self.versions.items())
        if not low <= version <= high:
            raise ConnectionAbortedError  # which closes the connection, as a broker does
        kinds = {
            METADATA: self._metadata,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            PRODUCE: self._produce,
            HANDSHAKE: lambda version, request: i16(self.errors.get(HANDSHAKE, 0)) + listed([text("PLAIN")]),
            AUTHENTICATE: lambda version, request: (
                i16(self.errors.get(AUTHENTICATE, 0)) + text("") + struct.pack(">i", 0)
            ),
        }
        return kinds[api](version, request)

    def _metadata(self, version: int, request: Reader) -> bytes:
        node = i32(1) + text("127.0.0.1") + i32(self.port) + text("")
        partition = i16(0) + i32(0) + i32(1) + listed([i32(1)]) + listed([i32(1)])
        topic = i16(self.errors.get(METADATA, 0)) + text(self.topic) + b"\0" + listed([partition])
        return (i32(0) if version >= 3 else b"") + listed([node]) + text("cluster") + i32(1) + listed([topic])

    def _fetch(self, version: int, request: Reader) -> bytes:
        for _ in range(4):
            request.i32()
        request.i8()
        if version >= 7:
            request.i32(), request.i32()
        request.i32(), request.text(), request.i32(), request.i32()
        if version >= 9:
            request.i32()
        fetch = Fetch(offset := request.i64(), self._asked.get(offset, 0))
        self._asked[offset] = fetch.before + 1
        answer = self.on_fetch(fetch)
        if answer is None:
            error = self.errors.get(FETCH, 0)
            found = [] if error else [batch for after, batch in self.log if after > offset]
            answer = Answer(b"".join(found), error)
            if not answer.records:
                time.sleep(0.02)  # a client at the log's end is not to spin
        if answer.raw is not None:
            return answer.raw
        high = self.high if answer.high is None else answer.high
        partition = i32(0) + i16(answer.error) + i64(high) + i64(high)
        partition += i64(self.start) if version >= 5 else b""
        partition += listed([]) + (i32(-1) if version >= 11 else b"") + i32(len(answer.records))
        topics = listed([text(self.topic) + listed([partition + answer.records])])
        return i32(0) + (i16(0) + i32(0) if version >= 7 else b"") + topics

    def _list_offsets(self, version: int, request: Reader) -> bytes:
        request.i32()
        if version >= 2:
            request.i8()
        request.i32(), request.text(), request.i32(), request.i32()
        offset = self.start if request.i64() == -2 else self.high
        partition = i32(0) + i16(self.errors.get(LIST_OFFSETS, 0)) + i64(-1) + i64(offset)
        return (i32(0) if version >= 2 else b"") + listed([text(self.topic) + listed([partition])])

    def _produce(self, version: int, request: Reader) -> bytes:
        partition = i32(0) + i16(self.on_produce()) + i64(0) + i64(-1) + i64(0)
        return listed([text(self.topic) + listed([partition])]) + i32(0)


# -- record batches -----------------------------------------------------------------------------------------------


def batch(base: int, values: Iterable[bytes], *, attributes: int = 0) -> tuple[int, bytes]:
    """Records in format 2, an offset each; with the offset after them."""
    records = [_record(place, value) for place, value in enumerate(values)]
    body = struct.pack(">hiqqqhii", attributes, len(records) - 1, 1000, 1000, -1, -1, -1, len(records))
    body += b"".join(records)
    head = struct.pack(">qiibI", base, len(body) + 9, 0, 2, crc32c(body))
    return base + len(records), head + body


def old_batch(base: int, values: Iterable[bytes], magic: int) -> tuple[int, bytes]:
    """The same in format 0 or 1: messages one after another."""
    made = b""
    for offset, value in enumerate(values, base):
        stamp = struct.pack(">q", 1000) if magic else b""
        body = bytes([magic, 0]) + stamp + i32(-1) + i32(len(value)) + value
        made += struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
        base = offset + 1
    return base, made


def _record(place: int, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(place) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    rest, made = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*made, rest])


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


# -- the wire -----------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def i8(self) -> int:
        return self._take(">b")

    def i16(self) -> int:
        return self._take(">h")

    def i32(self) -> int:
        return self._take(">i")

    def i64(self) -> int:
        return self._take(">q")

    def text(self) -> str:
        length = max(0, self.i16())
        self._at += length
        return self._data[self._at - length : self._at].decode()


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def text(value: str) -> bytes:
    return i16(len(value)) + value.encode()


def listed(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return i32(len(found)) + b"".join(found)
