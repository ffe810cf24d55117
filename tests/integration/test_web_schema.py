"""Requests that nobody expects: schemathesis makes them from the API's own description, and none is answered with 500."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from forebay.web.backend import Backend
from forebay.web.server import Dashboard

HEADERS = {"X-Forebay-Request": "1"}
EXAMPLES = 12 if "FOREBAY_LONG" in os.environ else 4  # of each operation, right and wrong ones
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
    schema = schemathesis.openapi.from_url(f"{url}/api/openapi.json").exclude(path_regex=STREAMS)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _ask(operation.as_strategy(generation_mode=mode))


def _ask(requests: SearchStrategy[Case]) -> None:
    @given(case=requests)
    @settings(
        max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        database=None, derandomize=True,
    )  # fmt: skip
    def ask(case: Case) -> None:
        answer = case.call(headers=HEADERS, timeout=20)
        case.validate_response(answer, checks=[_no_500, content_type_conformance, status_code_conformance])

    # Of an operation without parameters there is no wrong request.
    with suppress(Unsatisfiable):
        ask()


def _no_500(context: Any, response: Any, case: Case) -> None:
    """503 says that somebody else does not answer; what nobody foresaw has its own code, and is a fault of ours."""
    assert response.status_code != 500
    assert b"FB0001" not in response.content, response.content


def test_a_stream_of_changes_ends_when_its_time_is_over(url: str) -> None:
    with httpx.stream("GET", f"{url}/api/views/bars/changes", params={"after": -1, "timeout": 0}) as stream:
        lines = list(stream.iter_lines())
    assert lines.count("event: change") >= 1
