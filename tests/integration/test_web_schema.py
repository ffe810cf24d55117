"""Requests that nobody expects: schemathesis makes them from the API's own description, and none is answered with 500."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from made_up_requests import ask_everything

from forebay.web.backend import Backend
from forebay.web.server import Dashboard

STREAMS = r"/(events|changes)$"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    served = Dashboard(Backend(_home(tmp_path_factory.mktemp("schema") / "home")), port=0, pages=False)
    yield served.url
    served.close()


def _home(path: Path) -> Path:
    """With a source whose brokers are away, and a view over it: paths of the code that an empty home does not have."""
    import pyarrow as pa
    from homes import finished_view

    finished_view(path, "bars", pa.table({"symbol": ["a", "b"], "volume": [1, 2]}))
    return path


def test_no_request_is_answered_with_500(url: str) -> None:
    asked, _ = ask_everything(url, exclude=STREAMS)
    assert asked > 25


def test_a_stream_of_changes_ends_when_its_time_is_over(url: str) -> None:
    with httpx.stream("GET", f"{url}/api/views/bars/changes", params={"after": -1, "timeout": 0}) as stream:
        lines = list(stream.iter_lines())
    assert lines.count("event: change") >= 1
