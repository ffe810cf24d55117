"""Sets of files in the cache folder: a lock per set, and folders that are complete or absent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay import locks

MANIFEST = "manifest.json"


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`; `on_wait` is called once if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = locks.take(path)
    if held is None:
        on_wait()
        held = locks.wait_for(path)
    try:
        yield
    finally:
        held.release()


def is_complete(directory: Path) -> bool:
    """Whether every file is there with the size it had when it was verified.

    Sizes are enough here: the sums were checked before the folder got its name, and reading 150 MB
    on every start would cost more than the start.
    """
    try:
        sizes = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def write_manifest(directory: Path) -> None:
    """Note the size of every file; the last step before a folder is published."""
    sizes = {
        str(path.relative_to(directory)): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    (directory / MANIFEST).write_text(json.dumps(sizes, indent=0), encoding="utf-8")


def publish(prepared: Path, directory: Path) -> None:
    """Give a prepared folder its final name in one step; a damaged folder of that name makes way."""
    if directory.exists():
        shutil.rmtree(directory)
    prepared.replace(directory)
