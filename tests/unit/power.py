"""A power failure, as the strictest disk would have it: only what was forced to it is there afterwards.

What `os.fsync` was called for in this process is kept: of a file its content, of a folder its names, as they were then.
The real call is made as well. A name whose file was never forced is an empty file afterwards.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest


class Disk:
    """What is on the disk of all that this process has forced there since it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[
            int
        ] = []  # a file that is open keeps its number, which would go to another otherwise
        self.forced: Callable[[], None] = lambda: None  # called each time that something was forced there
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            self._force(handle)
            self.forced()

        monkeypatch.setattr(os, "fsync", fsync)

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)

    def _force(self, handle: int) -> None:
        found = os.fstat(handle)
        self._held.append(os.dup(handle))
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {entry.name: entry.inode() for entry in os.scandir(handle)}
        else:
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def after_power_failure(self, root: Path, copy: Path) -> Path:
        """What is left of a folder, as a copy; the folder itself was there before."""
        self._restore(root.stat().st_ino, copy)
        return copy

    def _restore(self, folder: int, copy: Path) -> None:
        copy.mkdir()
        for name, inode in self._names.get(folder, {}).items():
            if inode in self._names:
                self._restore(inode, copy / name)
            else:
                (copy / name).write_bytes(self._contents.get(inode, b""))
