"""Requests that schemathesis makes up from an API's own description, right ones and wrong ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

HEADERS = {"X-Forebay-Request": "1"}
EXAMPLES = 12 if "FOREBAY_LONG" in os.environ else 4  # of each operation, right and wrong ones


def ask_everything(
    url: str, *, include: str = "", exclude: str, aim: Mapping[str, Any] | None = None
) -> tuple[int, set[int]]:
    """How many operations were asked, and the statuses that they answered with. None may be 500. `aim` has values for fields
    and parameters by their names: of things that are there, which no made-up request would ever hit."""
    schema = schemathesis.openapi.from_url(f"{url}/api/openapi.json").exclude(path_regex=exclude)
    if include:
        schema = schema.include(path_regex=include)
    operations = [found.ok() for found in schema.get_all_operations()]
    statuses: set[int] = set()
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            aimed = aim if mode is GenerationMode.POSITIVE else None
            _ask(operation.as_strategy(generation_mode=mode), aimed or {}, statuses.add)
    return len(operations), statuses


def _ask(requests: SearchStrategy[Case], aim: Mapping[str, Any], heard: Callable[[int], None]) -> None:
    @given(case=requests)
    @settings(
        max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        database=None, derandomize=True,
    )  # fmt: skip
    def ask(case: Case) -> None:
        for part in (case.path_parameters, case.query, case.body):
            if isinstance(part, dict):
                part.update({name: value for name, value in aim.items() if name in part})
        answer = case.call(headers=HEADERS, timeout=20)
        case.validate_response(answer, checks=[_no_500, content_type_conformance, status_code_conformance])
        heard(answer.status_code)

    # Of an operation without parameters there is no wrong request.
    with suppress(Unsatisfiable):
        ask()


def _no_500(context: Any, response: Any, case: Case) -> None:
    """503 says that somebody else does not answer; what nobody foresaw has its own code, and is a fault of ours."""
    assert response.status_code != 500
    assert b"FB0001" not in response.content, response.content
