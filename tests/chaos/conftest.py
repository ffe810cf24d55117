"""Chaos kills drivers and members, never the broker: it runs on the worker's, with the integration tests' hands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from support import Cluster

from forebay.devstack import DevStack


@pytest.fixture(scope="session")
def cluster(broker: DevStack) -> Cluster:
    return Cluster(broker)
