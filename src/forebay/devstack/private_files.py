"""Files that only their owner may read: keys, certificates, passwords."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key, as PEM files; `store` has both, as a broker takes it."""

    certificate: Path
    key: Path
    store: Path


def files_of(folder: Path, name: str) -> CertificateFiles:
    """Where the certificate of this name is kept."""
    return CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.store.pem")


def write_private(path: Path, data: bytes) -> None:
    """A file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)  # one that is there keeps the rights that it has
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
