"""One process runs a view at a time. The lock goes with the process, however it ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import locks
from forebay.errors import AlreadyRunningError

if TYPE_CHECKING:
    from filelock import BaseFileLock


class ViewLock:
    """Held by the process that runs a view, or that is about to drop it."""

    def __init__(self, view: str, path: Path) -> None:
        self._view = view
        self._path = path
        self._held: BaseFileLock | None = None
        self._releasing = threading.Lock()

    def acquire(self) -> None:
        """AlreadyRunningError, at once, if another holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = locks.take(self._path, f"process {os.getpid()}")
        if held is None:
            holder = locks.note_of(self._path) or "another process"
            raise AlreadyRunningError(f"view '{self._view}' is being run by {holder}")
        self._held = held

    def release(self) -> None:
        """Safe to call twice, also at once: a query that fails lets go by itself while somebody stops it."""
        with self._releasing:
            if self._held is not None:
                self._held.release()
                self._held = None
