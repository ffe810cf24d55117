"""What this process sends to and receives from a broker, by the kernel's count: whether somebody fetches."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

RECORDS = 16 << 10  # bytes: what is shorter is no answer with records, but one about topics and brokers
_RECEIVED, _SENT = 128, 200  # places in Linux's struct tcp_info


@dataclass
class Traffic:
    """Sampled in the background every millisecond while it is used as a context manager."""

    port: int
    samples: list[tuple[float, int, int]] = field(default_factory=list)  # when, bytes sent, bytes received

    def __enter__(self) -> Traffic:
        self._before = {name for name, _ in _connections(self.port)}  # the tests' own hands on the broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.001):
            self.samples.append((time.monotonic(), *_totals(self.port, self._before)))

    def last_fetch(self) -> float:
        """When something was last asked for that records came of; at the earliest, where the samples have a gap."""
        found, asked, before = self.samples[0][0], self.samples[0][0], 0
        for (then, sent_before, _), (_, sent, received) in pairwise(self.samples):
            if sent > sent_before:
                asked, before = then, received
            elif received - before > RECORDS:
                found, before = asked, received
        return found

    def reached(self, received: int) -> float:
        """When so many bytes had come."""
        return next(now for now, _, found in self.samples if found >= received)


def _totals(port: int, but: Container[str]) -> tuple[int, int]:
    sent = received = 0
    for name, info in _connections(port):
        if name not in but:
            received += struct.unpack_from("=Q", info, _RECEIVED)[0]
            sent += struct.unpack_from("=Q", info, _SENT)[0]
    return sent, received


def _connections(port: int) -> Iterator[tuple[str, bytes]]:
    """This process's connections to a port, each with what the kernel knows of it."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            name = str(path.readlink())
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as found:
                if found.type == socket.SOCK_STREAM and found.getpeername()[1] == port:
                    yield name, found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except (OSError, IndexError, TypeError):
            continue  # closed meanwhile, or no TCP
