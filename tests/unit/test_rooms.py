"""Who imports whom: rooms in one order, no cycles, Spark only where Spark runs. `scripts/rooms.py` has the order."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from scripts import rooms

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def test_every_module_is_in_a_declared_room() -> None:
    assert {rooms.room(name) for name in rooms.modules()} == set(rooms.ORDER)
    assert {"errors.py", "options.py"} <= {path.name for path in rooms.modules().values()}


@pytest.mark.parametrize("name", rooms.ORDER)
def test_a_room_imports_only_from_rooms_before_it(name: str) -> None:
    allowed = set(rooms.ORDER[: rooms.ORDER.index(name)])
    against = [
        f"{each.by} imports {each.of}"
        for each in rooms.imports()
        if rooms.room(each.by) == name
        and not each.typing
        and each.of in rooms.modules()
        and rooms.room(each.of) not in allowed | {name}
    ]
    assert against == []


def test_no_modules_import_each_other_in_a_circle_when_they_are_loaded() -> None:
    graph = rooms.module_graph(lazy=False)
    assert [name for name in graph if name in rooms.reach(graph, name)] == []


def test_spark_is_imported_by_the_declared_modules_and_no_others() -> None:
    spark = [each for each in rooms.imports() if each.of.split(".")[0] in ("pyspark", "py4j")]
    assert {each.by for each in spark if not each.typing} == rooms.SPARK
    assert {each.by for each in spark if each.typing} == rooms.SPARK_IN_TYPES
    assert {rooms.room(name) for name in rooms.SPARK | rooms.SPARK_IN_TYPES} == {"source", "runtime", "views"}


def test_rooms_without_spark_cannot_come_to_it_over_others() -> None:
    graph = rooms.module_graph(lazy=True)
    ways = {
        name: sorted(found)
        for name in graph
        if rooms.room(name) in rooms.WITHOUT_SPARK and (found := rooms.reach(graph, name) & rooms.SPARK)
    }
    assert ways == {}


def test_a_pool_that_decodes_avro_loads_no_spark() -> None:
    code = f"""
import sys, forebay
from forebay.pool.decoding import decoding
pool = forebay.Pool(bootstrap_servers="127.0.0.1:1", topics=["t"], group_id="g", format="avro", avro_schema={AVRO!r})
assert decoding(pool.options) is not None
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    text = (rooms.ROOT / "DESIGN.md").read_text()
    assert rooms.design(text) == text, "DESIGN.md is out of date: run make docs"


def test_the_map_has_every_room_in_the_declared_order() -> None:
    text = (rooms.ROOT / "DESIGN.md").read_text()
    first = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    named = [re.sub(r"/$|\.py$", "", name) for cell in first for name in re.findall(r"`([\w/.]+?)`", cell)]
    shown = [rooms.room(f"forebay.{name}") for name in named if "/" not in name]
    assert list(dict.fromkeys(shown)) == [name for name in rooms.ORDER if name not in ("forebay", "__main__")]
    assert set(rooms.BASE) <= set(named)


def test_a_longer_way_makes_an_arrow_superfluous() -> None:
    assert rooms.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_imports_are_found_wherever_they_stand() -> None:
    import ast

    code = """
import one
if TYPE_CHECKING:
    import two
else:
    import three
class A:
    def f(self):
        from four.deep import x
        if TYPE_CHECKING:
            import five
"""
    found = [(each.of, each.lazy, each.typing) for each in rooms._of("m", ast.parse(code))]
    assert found == [
        ("one", False, False), ("two", False, True), ("three", False, False),
        ("four.deep", True, False), ("five", True, True),
    ]  # fmt: skip
