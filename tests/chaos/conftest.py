"""Chaos kills drivers and members, never the broker: it runs on the worker's, with the integration tests' hands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from s3 import s3_server
from support import Cluster

from forebay.devstack import DevStack


@pytest.fixture(scope="session", autouse=True)
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tables are in the home; with FOREBAY_CHAOS_S3 they are on a real S3 server."""
    if "FOREBAY_CHAOS_S3" not in os.environ:
        yield
        return
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for key, value in server.environment.items():
            patch.setenv(key, value)
        yield


@pytest.fixture(autouse=True)
def storage_of_a_test(storage: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of two tests may have the same name."""
    if "FOREBAY_CHAOS_S3" in os.environ:
        monkeypatch.setenv("FOREBAY_STORAGE", f"s3://lake/{tmp_path.name}")


@pytest.fixture(scope="session")
def cluster(broker: DevStack) -> Cluster:
    return Cluster(broker)
