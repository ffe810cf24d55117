"""The S3 server of tests. Where it cannot be had, a test that needs it says so and is left out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts import s3_server as servers
from scripts.s3_server import MISSING, PROGRAM, SECRET, S3Server

__all__ = ["PROGRAM", "SECRET", "S3Server", "s3_server"]


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    if shutil.which(PROGRAM) is None:
        pytest.skip(MISSING)
    with servers.s3_server(folder) as running:
        yield running
