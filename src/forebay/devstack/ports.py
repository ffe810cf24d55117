"""Free ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

HOST = "127.0.0.1"
# Below the range from which kernels take the source ports of outgoing connections (32768 on Linux,
# 49152 on macOS). A client that keeps trying to reach a stopped broker inside that range may be given
# the broker's own port as its source, connect to itself, and keep the broker from coming back.
_LOWEST, _HIGHEST = 15_000, 32_000
# Not the generator that anybody may seed: two processes, or two runs, would take the same ports in turn.
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a server could listen there now; connections that linger in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Distinct ports, free at this moment: whoever uses them must be ready to ask again.

    `besides` are given away already, though nobody listens there yet.
    """
    found: list[int] = []
    while len(found) < count:
        port = _random.randrange(_LOWEST, _HIGHEST)
        if port not in (*found, *besides) and is_free(port):
            found.append(port)
    return found


def answers(port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
