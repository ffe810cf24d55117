"""DESIGN.md follows functions by name: each is there, and each life is short enough to be read at once."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from scripts.rooms import ROOT, SOURCES, modules

from forebay.kafka.options import KAFKA
from forebay.pool.options import POOL

LIVES = dict(
    re.findall(r"^## (The life of .*?)\n(.*?)(?=^## )", (ROOT / "DESIGN.md").read_text(), re.MULTILINE | re.DOTALL)
)  # fmt: skip


@cache
def _names() -> set[str]:
    """Classes, functions, `Class.method` and `module.function`, as the text names them."""
    found: set[str] = set()
    for module, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                methods = [
                    each.name
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                found |= {node.name, *methods, *(f"{node.name}.{name}" for name in methods)}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # A package hands out what its modules have: `sql.parse` is in `sql/parse.py`.
                *_, room, last = ("", *module.split("."))
                found |= {node.name, f"{last}.{node.name}", f"{room}.{node.name}"}
    return found


def _is_there(name: str) -> bool:
    if name in _names() or name in KAFKA or name in POOL:
        return True
    if "/" in name or name.endswith(".py"):
        return any(place.exists() for place in (ROOT / name, SOURCES / name)) or any(SOURCES.rglob(name))
    return False


def test_there_is_a_life_of_a_record_a_letter_a_pool_record_and_a_statement() -> None:
    assert list(LIVES) == [
        f"The life of a {of}"
        for of in ("record", "partition in a shared group", "dead letter", "pool record", "statement")
    ]


@pytest.mark.parametrize("life", LIVES)
def test_a_life_has_at_most_ten_steps(life: str) -> None:
    steps = re.findall(r"^(\d+)\. ", LIVES[life], re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert 5 <= len(steps) <= 10


@pytest.mark.parametrize("life", LIVES)
def test_what_a_life_names_is_in_the_code(life: str) -> None:
    named = re.findall(r"`([^`]+)`", LIVES[life])
    assert len(named) > 5
    assert [name for name in named if not _is_there(name)] == []
    assert not _is_there("Router.forget_all")
