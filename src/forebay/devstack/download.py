"""Resolve a pinned set into the user's cache: verified in full once, offline ever after."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from forebay.cache import cache_root
from forebay.devstack import ivy
from forebay.devstack.archive import unpack
from forebay.devstack.artifact_cache import is_complete, locked, publish, write_manifest
from forebay.devstack.artifacts import ArtifactSet, MavenFile
from forebay.devstack.download_progress import download_progress, say
from forebay.errors import ChecksumError, DownloadError


def resolve(wanted: ArtifactSet) -> Path:
    """The folder with the set's files; downloads them if they are not cached yet.

    Any number of processes may call this at once: one downloads, the others wait for it. Archives are
    unpacked. When something fails, the cache is left as it was.
    """
    root = cache_root()
    home = root / wanted.directory_name
    if is_complete(home):
        return home
    title = f"{wanted.title} {wanted.version}"
    with locked(root / f".{wanted.name}.lock", lambda: say(f"Waiting for another download of {title}")):
        if is_complete(home):
            return home
        _download(wanted, home, title)
    return home


def _download(wanted: ArtifactSet, home: Path, title: str) -> None:
    prefix = f".{wanted.name}-download-"
    # Only the holder of the lock makes such folders: any that exist were left by a killed process.
    for left_over in home.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home.parent) as work:
        with download_progress(title, wanted.size) as on_bytes:
            files = ivy.retrieve(wanted, Path(work), on_bytes)
        for artifact in wanted.artifacts:
            verify(files / artifact.file_name, artifact)
        for artifact in wanted.artifacts:
            if artifact.type == "tar.gz":
                unpack(files / artifact.file_name, files)
                (files / artifact.file_name).unlink()
        write_manifest(files)
        publish(files, home)


def verify(path: Path, artifact: MavenFile) -> None:
    """Raise unless the file has the pinned SHA-256."""
    if not path.is_file():
        raise DownloadError(f"{artifact.file_name} did not arrive", remedy="run it again")
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != artifact.sha256:
        raise ChecksumError(
            f"{artifact.file_name} has SHA-256 {found}, expected {artifact.sha256}",
            remedy="nothing was kept; a proxy or mirror may have altered the file, or try again",
            file=artifact.file_name,
            expected=artifact.sha256,
            found=found,
        )
