"""The public face is pinned: a name that comes or goes is a decision, never an accident."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forebay

EXPECTED = [
    "Artifact",
    "BoardReplay",
    "DeadLetters",
    "DevStack",
    "FilterConfig",
    "ForebayError",
    "HealthStatus",
    "KafkaBlackboardStore",
    "Letter",
    "Orchestrator",
    "PartitionStats",
    "Pool",
    "PoolStats",
    "QueryStatus",
    "Record",
    "RecoveryReport",
    "ReplayReport",
    "Result",
    "RetryPolicy",
    "Session",
    "SourceLag",
    "SourceMetrics",
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


PUBLIC = {"forebay", "forebay.testing", "forebay.blackboard", "forebay.blackboard.flock"}
ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [*sorted((ROOT / "examples").rglob("*.py")), *(ROOT / "src/forebay/template").glob("*.py")]


def _programs() -> list[str]:
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    return [*blocks, *(path.read_text() for path in PROGRAMS)]


def test_what_pages_and_examples_import_is_public() -> None:
    found = set()
    for program in _programs():
        code = "\n".join(line for line in program.splitlines() if not line.startswith("%"))
        for node in ast.walk(ast.parse(code, feature_version=(3, 11))):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "forebay":
                found |= {(str(node.module), alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "forebay"}
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "forebay"
            ):
                found.add(("forebay", node.attr))
    assert {module for module, _ in found} <= PUBLIC
    assert {name for module, name in found if module == "forebay"} - {""} <= {*EXPECTED, "__version__"}
    board = importlib.import_module("forebay.blackboard")
    assert {name for module, name in found if module == "forebay.blackboard"} <= {*board.__all__}
    assert ("forebay.blackboard.flock", "KafkaBlackboardStore") in found


def _exported() -> dict[str, type]:
    board = importlib.import_module("forebay.blackboard")
    found = [getattr(forebay, name) for name in EXPECTED] + [getattr(board, name) for name in board.__all__]
    return {each.__name__: each for each in found if inspect.isclass(each)}


@pytest.mark.parametrize("name", sorted(_exported()))
def test_every_public_method_of_what_is_exported_says_what_it_does(name: str) -> None:
    cls = _exported()[name]
    # A dataclass without a docstring has its signature for one.
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{name}(")
    bare = []
    for member, value in vars(cls).items():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not member.startswith("_") and inspect.isfunction(inner) and not inner.__doc__:
            bare.append(member)
    assert bare == []


@pytest.mark.parametrize(
    "name", ["Pool", "KafkaBlackboardStore", "DevStack", "connect", "Session", "DeadLetters", "Orchestrator"]
)
def test_help_teaches_by_an_example_and_says_what_is_raised(name: str) -> None:
    shown = inspect.getdoc(getattr(forebay, name)) or ""
    if name != "Session":  # `connect` has it
        assert re.search(r"^    \S", shown, re.MULTILINE), "an example"
    raised = re.findall(r"`(\w+Error)`", shown)
    assert raised or name in ("connect", "Orchestrator")
    assert set(raised) <= set(vars(forebay.errors))


def test_the_parameters_of_connect_and_devstack_have_a_line_each() -> None:
    for each in (forebay.connect, forebay.DevStack):
        shown = inspect.getdoc(each) or ""
        for parameter in inspect.signature(each).parameters:
            assert re.search(rf"^(\w+, )*{parameter}(, \w+)*: ", shown, re.MULTILINE), parameter
