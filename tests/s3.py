"""The S3 server of tests. Where it cannot be had, a test that needs it says so and is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts import s3_server as servers
from scripts.s3_server import SECRET, S3Server

__all__ = ["SECRET", "S3Server", "s3_server", "why_not"]


def why_not() -> str:
    """Why there is no server here; empty where there is one."""
    try:
        servers.program()
    except FileNotFoundError as error:
        return str(error)
    return ""


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    if why := why_not():
        pytest.skip(why)
    with servers.s3_server(folder) as running:
        yield running
