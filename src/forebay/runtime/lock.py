"""One process runs a view at a time. The lock goes with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import IO

from forebay.errors import AlreadyRunningError


class ViewLock:
    """Held by the process that runs a view, or that is about to drop it."""

    def __init__(self, view: str, path: Path) -> None:
        self._view = view
        self._path = path
        self._file: IO[str] | None = None
        self._releasing = threading.Lock()

    def acquire(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = self._path.open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "another process"
            handle.close()
            raise AlreadyRunningError(f"view '{self._view}' is being run by {holder}") from None
        handle.truncate(0)
        handle.write(f"process {os.getpid()}")
        handle.flush()
        self._file = handle

    def release(self) -> None:
        """Safe to call twice, also at once: a query that fails lets go by itself while somebody stops it."""
        with self._releasing:
            if self._file is not None:
                self._file.close()
                self._file = None
