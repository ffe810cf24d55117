"""Chaos runs on a broker like the integration tests, with the same hands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from support import Cluster

from forebay.devstack import DevStack


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with DevStack() as stack:
        yield Cluster(stack)
