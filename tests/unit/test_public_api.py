"""The public face is pinned: a name that comes or goes is a decision, never an accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

import forebay

EXPECTED = [
    "Artifact",
    "DeadLetters",
    "DevStack",
    "ForebayError",
    "KafkaBlackboardStore",
    "Letter",
    "Pool",
    "QueryStatus",
    "Record",
    "Result",
    "Session",
    "SourceLag",
    "SourceStatus",
    "Subscription",
    "connect",
    "errors",
    "register",
]


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(forebay.__all__) == EXPECTED
    assert dir(forebay) == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(forebay, name).__name__.rpartition(".")[2] == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        forebay.Sesion  # noqa: B018


def test_importing_forebay_loads_neither_spark_nor_kafka() -> None:
    code = "import sys, forebay; print([m for m in ('pyspark', 'confluent_kafka', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
