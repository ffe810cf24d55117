"""Unpack a tar archive without trusting the paths in it."""

from __future__ import annotations

import tarfile
from pathlib import Path

from forebay.errors import DownloadError


def unpack(archive: Path, target: Path) -> None:
    """Unpack into `target`; anything that would land outside of it, or is no plain file, is refused."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise DownloadError(
            f"{archive.name} is not safe to unpack: {error}",
            remedy="this file is not what was published; report it",
        ) from error
