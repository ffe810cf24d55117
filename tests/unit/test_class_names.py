"""One name, one thing: who reads a class's name knows which it is, wherever it stands."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import forebay

SHARED = {
    "KafkaBlackboardStore",  # Flock's is a subclass that takes its place, and users type the name
}


def test_no_two_classes_have_the_same_name() -> None:
    found = Counter(
        node.name
        for path in Path(forebay.__file__).parent.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert len(found) > 300
    assert {name for name, times in found.items() if times > 1} <= SHARED
