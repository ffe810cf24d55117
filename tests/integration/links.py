"""A link to a broker that can be slow, silent or cut: a TCP proxy that the broker advertises in place of itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import javaproperties
from support import QUIET

from forebay.devstack import kraft
from forebay.devstack.broker import Broker
from forebay.devstack.ports import HOST
from forebay.devstack.stack import start_all

CHUNK = 16_384


class Link:
    """Passes bytes on, both ways, as long as it is not told otherwise."""

    def __init__(self) -> None:
        self.target = 0
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._passing = threading.Event()  # unset: what comes waits, and nobody hears of it
        self._passing.set()
        self._bytes_per_s: float | None = None
        self._refusing = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.passed = 0  # bytes from the broker
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def slow_down(self, bytes_per_s: float | None) -> None:
        """So fast from the broker, and no faster; None for as fast as can be."""
        self._bytes_per_s = bytes_per_s

    def go_silent(self) -> None:
        """Connections stay, and nothing comes through them: what a lost cable is like."""
        self._passing.clear()

    def speak_again(self) -> None:
        self._passing.set()

    def cut(self, *, refuse: bool = False) -> None:
        """End all connections; with `refuse`, new ones too, until `restore()`."""
        self._refusing = refuse
        with self._lock:
            ends, self._open = self._open, set()
        for each in ends:
            _close(each)

    def restore(self) -> None:
        self._refusing = False

    def close(self) -> None:
        self._closed.set()
        self._passing.set()
        self._listener.close()
        self.cut(refuse=True)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _close(client)
                continue
            try:
                broker = socket.create_connection((HOST, self.target), timeout=5)
            except OSError:
                _close(client)
                continue
            broker.settimeout(None)
            with self._lock:
                self._open |= {client, broker}
            for here, there, counted in ((client, broker, False), (broker, client, True)):
                threading.Thread(target=self._pass_on, args=(here, there, counted), daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket, counted: bool) -> None:
        try:
            while found := here.recv(CHUNK):
                self._passing.wait()
                if counted and self._bytes_per_s is not None:
                    self._closed.wait(len(found) / self._bytes_per_s)
                there.sendall(found)
                self.passed += len(found) if counted else 0
        except OSError:
            QUIET.debug("a connection ended")
        finally:
            _close(here)
            _close(there)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class _Behind(Broker):
    """A broker whose clients come through a link."""

    def __init__(self, directory: Path, link: Link) -> None:
        super().__init__(directory)
        self._link = link

    def _prepare(self, port: int, *rest: Any) -> Any:
        prepared = super()._prepare(port, *rest)
        config = self.directory / "server.properties"
        properties = javaproperties.loads(config.read_text())
        own, linked = f"CLIENT://{HOST}:{port}", f"CLIENT://{HOST}:{self._link.port}"
        properties["advertised.listeners"] = properties["advertised.listeners"].replace(own, linked)
        kraft.write_properties(config, properties)
        self._link.target = port
        return prepared


@dataclass(frozen=True)
class Linked:
    """What a `Cluster` needs to know of a broker behind a link."""

    link: Link

    @property
    def bootstrap_servers(self) -> str:
        return self.link.bootstrap_servers


@contextmanager
def linked_broker(directory: Path) -> Iterator[Linked]:
    link = Link()
    broker = _Behind(directory, link)
    start_all([broker])
    try:
        yield Linked(link)
    finally:
        broker.stop()
        link.close()
