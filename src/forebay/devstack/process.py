"""One JVM: started with a log file, awaited until it answers, stopped for certain."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from forebay.devstack import watch
from forebay.errors import StackStartError

# A broker stops in half a second; the first one of a kind also writes its class archive, a few more.
STOP_SECONDS = 20.0
# What Java returns when it ends by itself, and after SIGTERM once its shutdown hooks are done.
ORDERLY_EXITS = (0, 143)
_TAIL_LINES = 25
# Popen warns when it is collected while its process runs; for a detached JVM that is the intention.
_detached: list[subprocess.Popen[bytes]] = []


class JavaProcess:
    """A running JVM. `marker` stands on its command line and on no other process's.

    A detached JVM outlives this Python process; any other ends with it, even if it is killed, and then
    `scratch` (temporary data) is removed too.
    """

    def __init__(
        self,
        name: str,
        java: str,
        arguments: Sequence[str],
        log: Path,
        *,
        detached: bool = False,
        scratch: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._temporary = scratch is not None
        self.marker = f"-Dforebay.stack={uuid.uuid4().hex}"
        command = [java, self.marker, *arguments]
        if not detached:
            watcher = [sys.executable, "-I", "-S", watch.__file__, str(os.getpid()), str(scratch or "")]
            command = [*watcher, *command]
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C is for Python, which then stops the JVM in order
            )
        if detached:
            _detached.append(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def listens(self, port: int) -> bool:
        """Whether this JVM itself does: somebody else's answer there is not its own."""
        with suppress(psutil.Error):
            own = psutil.Process(self.pid)
            return any(
                found.status == psutil.CONN_LISTEN and found.laddr.port == port
                for process in (own, *own.children(recursive=True))
                for found in process.net_connections("tcp")
            )
        return False

    def output(self) -> str:
        """What this JVM has logged so far; earlier runs in the same file are left out."""
        with self.log.open("rb") as handle:
            handle.seek(self._log_start)
            return handle.read().decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Wait for `ready`; if the JVM ends or time runs out, stop it and show the log's last lines."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise self._failure(f"ended with code {self._process.returncode} while starting")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"was not ready within {timeout:g} s")
            time.sleep(0.03)

    def _failure(self, what: str) -> StackStartError:
        tail = "\n".join(f"    {line}" for line in self.output().splitlines()[-_TAIL_LINES:])
        remedy = f"read the whole log: {self.log}"
        if self._temporary:
            remedy = "to keep the whole log, give the stack a folder: DevStack(data_dir=…)"
        return StackStartError(f"the {self.name} {what}; its last words:\n{tail}", remedy=remedy)

    def stop(self, timeout: float = STOP_SECONDS) -> bool:
        """SIGTERM, wait, then SIGKILL. True if it left in order. Stopping twice is harmless."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode in ORDERLY_EXITS

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
