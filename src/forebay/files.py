"""Files that are there wholly or not at all, and that a power failure does not take away.

A rename makes a file whole for other processes. The disk learns of it later, in any order: first the content must be
forced there, then the folder that has its name.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

from forebay.object_path import ObjectPath, TablePath

T = TypeVar("T")


class Draft:
    """A file in the making, hidden beside its place until it is published.

    As a context manager it is published when its block ends, and removed when that raises. Where it need not be
    `durable`, a power failure may take it away again.
    """

    def __init__(self, path: Path, mode: str = "wb", *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self.file: IO[Any] = self._draft.open(mode, encoding=None if "b" in mode else "utf-8")

    def publish(self) -> None:
        """Give it its name; what had that name before is replaced."""
        if self._durable:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        self._draft.replace(self._path)
        if self._durable:
            sync(self._path.parent)

    def discard(self) -> None:
        """Remove it, if it was not published."""
        self.file.close()
        self._draft.unlink(missing_ok=True)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.discard()


def write_whole(path: TablePath, data: bytes, *, durable: bool = True) -> None:
    """A file that is there wholly or not at all; if durable, it is still there after a power failure."""
    if isinstance(path, ObjectPath):
        path.write_bytes(data)
        return
    with Draft(path, durable=durable) as draft:
        draft.file.write(data)


def persist(files: Iterable[TablePath]) -> None:
    """Force files that others have written to the disk, then the names that they have in their folders.

    What is in an object store is durable since it is there.
    """
    folders: set[Path] = set()
    for file in files:
        if isinstance(file, ObjectPath):
            continue
        sync(file)
        folders.add(file.parent)
    for folder in folders:
        sync(folder)


def make_folder(path: TablePath, mode: int = 0o777) -> None:
    """A folder, and those above it, whose names are on the disk. One that is there already is left as it is."""
    if isinstance(path, ObjectPath):
        return
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=mode)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Force a file's content to the disk, or the names that are in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FollowedFile(Generic[T]):
    """A file that others write, read again when it is another one."""

    def __init__(self, path: Path, read: Callable[[Path], T], missing: T) -> None:
        self.path = path
        self._read = read
        self._missing = missing
        self._known: tuple[tuple[int, int, int], T] | None = None

    def read(self) -> T:
        """What it says now; `missing` if it is not there."""
        try:
            seen = self.path.stat()
            stamp = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
            if self._known is None or self._known[0] != stamp:
                self._known = (stamp, self._read(self.path))
        except FileNotFoundError:
            return self._missing
        return self._known[1]
