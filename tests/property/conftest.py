"""A hundred examples run through the same lines: to trace them for coverage doubles their time and shows nothing new."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Not pytest-cov's own `no_cover`, which does nothing in a worker of xdist."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)
