"""The HDFS of tests. Where it cannot be had, a test that needs it says so and is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts import hdfs_server as servers
from scripts.hdfs_server import HdfsServer

from forebay.errors import DownloadError

__all__ = ["HdfsServer", "hdfs_server"]


@contextmanager
def hdfs_server(folder: Path) -> Iterator[HdfsServer]:
    try:
        with servers.hdfs_server(folder) as running:
            yield running
    except DownloadError as error:
        pytest.skip(error.message)
