"""The rooms of the package, who may import whom, and the picture of it in DESIGN.md.

The order below is the only place where it is declared; `tests/unit/test_rooms.py` holds the imports to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "forebay"

# Modules that stand by themselves beside the rooms; any room may use them.
BASE = (
    "masking", "hiding", "error_base", "errors", "options", "keywords", "column_types", "expression", "partial", "program", "patience", "backoff", "pace",
    "object_path", "files", "locks", "cache", "sqlite", "home_tables", "threads", "tables", "actors", "retention",
)  # fmt: skip

# A room imports only from rooms before it.
ORDER = (
    "base", "telemetry", "sql", "registry", "formats", "connectors", "native", "kafka", "deadletter", "pool", "testing",
    "blackboard", "source", "catalog", "views", "answers", "jvm", "runtime", "devstack", "project", "forebay",
    "notebook", "web", "cli", "template", "__main__",
)  # fmt: skip

# Rooms that run where there is no Spark: in a pool, on a blackboard, in a command that only looks.
WITHOUT_SPARK = (
    "base", "telemetry", "sql", "registry", "formats", "connectors", "native", "kafka", "deadletter", "pool",
    "blackboard", "catalog", "answers",
)  # fmt: skip

# The modules that import PySpark when they run, and there are no others.
SPARK = frozenset({
    "forebay.source.accounts", "forebay.source.worker_daemon", "forebay.source.datasource", "forebay.source.needed", "forebay.source.spark_types",
    "forebay.source.control", "forebay.source.stream", "forebay.source.versions",
    "forebay.runtime.changelog", "forebay.runtime.clusters", "forebay.runtime.collect", "forebay.runtime.events", "forebay.runtime.hadoop_path", "forebay.runtime.image", "forebay.runtime.spark_failures",
    "forebay.runtime.progress", "forebay.runtime.query", "forebay.runtime.shared_read", "forebay.runtime.shared_reads",
    "forebay.runtime.snapshots", "forebay.runtime.spark", "forebay.runtime.spark_refusals", "forebay.runtime.stream_run", "forebay.runtime.views",
})  # fmt: skip

# These name PySpark's classes in annotations alone, under TYPE_CHECKING.
SPARK_IN_TYPES = frozenset({
    "forebay.runtime.spark_start", "forebay.runtime.catalog_tables", "forebay.runtime.collect", "forebay.runtime.results",
    "forebay.runtime.session", "forebay.runtime.task_accounts", "forebay.views.table",
})  # fmt: skip

# Not in the picture: what every room uses, and the ends that use nearly everything.
_LEFT_OUT = frozenset({"base", "telemetry", "forebay", "template", "__main__"})
_BEGIN = "<!-- rooms: made from the imports by `make docs` -->"
_END = "<!-- end of rooms -->"


@dataclass(frozen=True)
class Import:
    """One import statement's name: of whom, of what, and when."""

    by: str
    of: str  # a module of ours as far as it is one, or a name outside
    lazy: bool  # inside a function: not when the module is loaded
    typing: bool  # under TYPE_CHECKING: never


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The room that a module of ours is in."""
    first = module.split(".")[1] if "." in module else module
    return "base" if first in BASE else first


@cache
def imports() -> tuple[Import, ...]:
    """All imports of all modules."""
    return tuple(each for name, path in modules().items() for each in _of(name, ast.parse(path.read_text())))


def _of(name: str, tree: ast.Module) -> Iterator[Import]:
    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        match node:
            case ast.Import():
                yield from (Import(name, alias.name, lazy, typing) for alias in node.names)
            case ast.ImportFrom(module=module, level=0):
                for alias in node.names:
                    inner = f"{module}.{alias.name}"
                    yield Import(name, inner if inner in modules() else str(module), lazy, typing)
            case ast.ImportFrom():
                raise ValueError(f"{name}: a relative import in line {node.lineno}")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for child in node.body:
                    yield from walk(child, lazy, True)
                for child in node.orelse:
                    yield from walk(child, lazy, typing)
            case _:
                inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                for child in ast.iter_child_nodes(node):
                    yield from walk(child, lazy or inside, typing)

    return walk(tree, False, False)


def module_graph(*, lazy: bool) -> dict[str, set[str]]:
    """Which modules of ours each module loads; with `lazy`, also those that its functions load.

    The packages that a module stands in are not among them: they re-export, and would make a cycle of each.
    """
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for each in imports():
        if each.of in graph and each.of != each.by and not each.typing and (lazy or not each.lazy):
            graph[each.by].add(each.of)
    return graph


def room_graph() -> dict[str, set[str]]:
    """Which rooms each room imports from, inside functions too."""
    graph: dict[str, set[str]] = {name: set() for name in ORDER}
    for by, targets in module_graph(lazy=True).items():
        graph.setdefault(room(by), set()).update(room(of) for of in targets if room(of) != room(by))
    return graph


def reach(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """All that can be reached from there, itself only by a cycle."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph without the arrows that a longer way already shows."""
    return {
        node: {to for to in targets if not any(to in reach(graph, other) for other in targets - {to})}
        for node, targets in graph.items()
    }


def picture() -> str:
    """The rooms as a Mermaid graph: an arrow goes from a room to one that it imports."""
    graph = {
        name: targets - _LEFT_OUT for name, targets in room_graph().items() if name not in _LEFT_OUT
    }  # fmt: skip
    arrows = reduced(graph)
    lines = ["```mermaid", "graph TD"]
    for name in reversed(ORDER):
        for target in sorted(arrows.get(name, ()), key=ORDER.index, reverse=True):
            lines.append(f"    {name} --> {target}")
    return "\n".join([*lines, "```"])


def design(text: str) -> str:
    """DESIGN.md with the picture as the imports are now."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError(f"DESIGN.md has no place for the picture: {_BEGIN} … {_END}")
    return f"{before}{_BEGIN}\n{picture()}\n{_END}{after}"


if __name__ == "__main__":
    print(picture())
