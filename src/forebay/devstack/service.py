"""What broker and registry have in common: one JVM on one port that stays the same once it is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from forebay.devstack.artifacts import load_set
from forebay.devstack.download import resolve
from forebay.devstack.ports import free_ports, is_free
from forebay.devstack.process import JavaProcess
from forebay.errors import StackNotRunningError, StackStartError
from forebay.jvm.classes import ClassArchive
from forebay.jvm.java import Java, find_java

_ATTEMPTS = 3


class Service(ABC):
    """One server of the stack. After the first start its port and its data stay the same.

    `scratch` is temporary data to be removed if this Python process dies; a `detached` service outlives
    it. `on_spawn` is called with the port as soon as there is a process, before it is ready.
    """

    name: ClassVar[str]
    artifacts: ClassVar[str]
    address_in_use: ClassVar[str]  # how its log says that another process was quicker to take a port

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        detached: bool = False,
        scratch: Path | None = None,
        on_spawn: Callable[[Service, int], None] = lambda service, port: None,
    ) -> None:
        self.directory = directory
        self.port = port
        self.process: JavaProcess | None = None
        self._detached = detached
        self._scratch = scratch
        self._on_spawn = on_spawn

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def known_port(self) -> int:
        """The port, also while the service is down; an error before the first start."""
        if self.port is None:
            raise StackNotRunningError(
                f"the {self.name} has no address before it is started", remedy="call start() first"
            )
        return self.port

    def start(self, timeout: float = 90) -> None:
        """Start, and return when it answers requests. Does nothing if it runs already."""
        if self.running:
            return
        if self.port is not None and not is_free(self.port):
            raise StackStartError(
                f"port {self.port} is in use", remedy="stop what listens there, or ask for another port"
            )
        for attempt in range(1, _ATTEMPTS + 1):
            port = self.port or free_ports(1)[0]
            process, ready = self._spawn(port)
            try:
                process.wait_until(_up(process, ready, port), timeout)
            except StackStartError:
                # A port that was free when it was chosen may be taken by the time it is bound.
                if attempt < _ATTEMPTS and self.address_in_use in process.output():
                    continue
                raise
            except BaseException:
                process.kill()  # Ctrl-C while waiting
                raise
            self.port = port
            return

    def stop(self) -> None:
        """Stop in order: SIGTERM, wait, and SIGKILL only if that does not help."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it. `start()` brings it back on the same port and data."""
        if self.process is not None:
            self.process.kill()

    def _spawn(self, port: int) -> tuple[JavaProcess, Callable[[], bool]]:
        java, home = find_java(), resolve(load_set(self.artifacts))
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments, ready = self._prepare(port, home, java)
        self.process = JavaProcess(
            self.name,
            java.path,
            [*ClassArchive(home, java).flags(), *arguments],
            self.log,
            detached=self._detached,
            scratch=self._scratch,
        )
        self._on_spawn(self, port)
        return self.process, ready

    @abstractmethod
    def _prepare(self, port: int, home: Path, java: Java) -> tuple[list[str], Callable[[], bool]]:
        """Write what the JVM needs; return its arguments, and how to ask whether it is ready."""


def _up(process: JavaProcess, ready: Callable[[], bool], port: int) -> Callable[[], bool]:
    """On a port that somebody else has taken, that one may seem to answer until ours has noticed."""
    return lambda: ready() and process.listens(port)
