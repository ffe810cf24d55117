"""Disks that are full: a small one is mounted at a folder. Where nothing can be mounted, a test that needs it says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BYTES = 2 << 20


@contextmanager
def small_disk(folder: Path, size: int = BYTES) -> Iterator[None]:
    """At a folder, in which there is again what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
    try:
        for file, content in kept.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Until not a byte more fits."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler
