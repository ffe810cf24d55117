"""Files that one holder at a time has. The kernel drops a lock with its process, so none is ever stale.

The file stays when its lock is released: whoever removed it could let two processes hold two files of the same name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock


def take(path: Path, note: str = "") -> BaseFileLock | None:
    """The lock, held; None if somebody else has it, in this process or another. The note says who has it.

    Any thread may release it. A process that is forked from this one does not hold it.
    """
    # Imported here: commands that only look take no lock, and do not wait 30 ms for the module.
    from filelock import Timeout

    lock = _lock(path, note)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


def wait_for(path: Path) -> BaseFileLock:
    """The lock, held; waits until whoever has it lets go."""
    lock = _lock(path)
    lock.acquire()
    return lock


def note_of(path: Path) -> str:
    """What the holder said of itself; empty if it did not, or has not yet."""
    return path.read_text(encoding="utf-8").strip()


def _lock(path: Path, note: str = "") -> BaseFileLock:
    from filelock import UnixFileLock

    def write(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)

    # Where a file system has no locks, the library would remove a file that a killed process leaves behind, and say
    # that it holds a lock. An error is better than two processes that run one view.
    return UnixFileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=write if note else None)
