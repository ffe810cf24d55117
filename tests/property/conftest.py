"""A hundred examples run through the same lines: to trace them for coverage doubles their time and shows nothing new."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with Forebay's settings on the Spark of this process."""
    from forebay.runtime import spark as sparks

    if not sparks.is_running():
        sparks.start("local[2]", {}, tmp_path_factory.mktemp("warehouse"))
    return sparks.beside({})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for files of all examples of a property."""
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Not pytest-cov's own `no_cover`, which does nothing in a worker of xdist."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)
