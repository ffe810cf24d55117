"""A face that an editor knows: the keywords of a class are those of its option table, typed and explained."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from scripts.docs import PAGES, ROOT

import forebay
from forebay import errors
from forebay.blackboard.agent_keywords import AgentKeywords
from forebay.blackboard.keywords import BlackboardKeywords
from forebay.blackboard.options import BLACKBOARD, OWN
from forebay.keywords import annotation, default, keyword, parameters, texts
from forebay.options import OptionTable
from forebay.pool.keywords import PoolKeywords
from forebay.pool.options import POOL

FACES = [
    pytest.param(forebay.Pool, POOL, PoolKeywords, set(), id="Pool"),
    pytest.param(
        forebay.KafkaBlackboardStore, BLACKBOARD, BlackboardKeywords, {"bootstrap_servers"}, id="Blackboard"
    ),
]


@pytest.mark.parametrize(("cls", "table", "typed", "spelled"), FACES)
def test_every_option_is_a_keyword_and_every_keyword_an_option(
    cls: type[Any], table: OptionTable, typed: Any, spelled: set[str]
) -> None:
    names = {keyword(option.name) for option in table.options} | {"kafka"}
    assert set(typed.__annotations__) == names - spelled
    assert names <= set(inspect.signature(cls).parameters)


@pytest.mark.parametrize(("cls", "table", "typed", "spelled"), FACES)
def test_a_keyword_has_the_type_and_the_default_of_its_option(
    cls: type[Any], table: OptionTable, typed: Any, spelled: set[str]
) -> None:
    hints = get_type_hints(typed, vars(sys.modules[typed.__module__]))
    shown = inspect.signature(cls).parameters
    for option in table.options:
        name = keyword(option.name)
        if name not in spelled:
            said = eval(annotation(option), vars(sys.modules[typed.__module__]))
            assert hints[name] == said, name
            assert shown[name].default == default(option), name


@pytest.mark.parametrize(("cls", "table", "typed", "spelled"), FACES)
def test_help_has_a_line_for_each_keyword_with_its_default(
    cls: type[Any], table: OptionTable, typed: Any, spelled: set[str]
) -> None:
    lines = inspect.getdoc(cls.__init__) or ""
    for name, written, about, _ in parameters(table, spelled):
        assert f"\n{name} ({written}): {about}" in lines
    for option in table.options:
        if option.default is not None:
            assert f"default {default(option)!r}" in lines
    for name in inspect.signature(cls).parameters:
        assert f"\n{name}" in lines, name


def test_an_orchestrator_takes_what_a_pool_takes_but_for_what_it_sets_itself() -> None:
    pool, own = set(PoolKeywords.__annotations__), {*OWN}
    shown = set(inspect.signature(forebay.Orchestrator).parameters)
    assert set(AgentKeywords.__annotations__) == pool - own - {"group_id", "workers", "order"}
    assert shown == (pool - own) | {"store", "retry"}


@pytest.mark.parametrize("page", [name for name in PAGES if name.endswith("keywords.py")])
def test_the_typed_keywords_are_those_that_the_table_makes(page: str) -> None:
    assert (ROOT / page).read_text() == PAGES[page](), "run make docs"


@pytest.mark.parametrize(
    ("make", "wrong", "meant"),
    [
        (lambda **more: forebay.Pool(topics=["t"], group_id="g", **more), "worker", "'workers'"),
        (lambda **more: forebay.Pool(topics=["t"], group_id="g", **more), "comit_interval_ms", "'commit.interval.ms'"),
        (forebay.KafkaBlackboardStore, "topic_prefx", "'topic.prefix'"),
        (forebay.KafkaBlackboardStore, "index_windw", "'index.window'"),
    ],
)  # fmt: skip
def test_an_unknown_keyword_is_our_error_with_a_suggestion(
    make: Callable[..., Any], wrong: str, meant: str
) -> None:
    with pytest.raises(errors.UnknownOptionError) as caught:
        make(**{wrong: 3})
    assert meant in caught.value.remedy


def test_what_is_given_by_keyword_reaches_the_option() -> None:
    given = {"topics": ["a", "b"], "adaptive": True, "group_id": "g", "heavy_lag": None, "queue_size": 7}
    found = {"topics": "a,b", "adaptive": "true", "group.id": "g", "queue.size": "7"}
    assert texts(POOL, given) == found
    assert texts(BLACKBOARD, {"topic_by_id": "x", "topic": {"dlq": {"prefix": "y"}}}) == {
        "topic.by_id": "x",
        "topic.dlq.prefix": "y",
    }
    store = forebay.KafkaBlackboardStore(kafka={"client.rack": "r_1"}, client_id="me")
    assert store.options.passed_through() == {"client.rack": "r_1"}


PROGRAM = """
import forebay
from forebay.blackboard import Artifact, KafkaBlackboardStore, Orchestrator

async def handle(record: forebay.Record) -> None:
    print(record.key, record.value)

async def main() -> None:
    pool = forebay.Pool(
        bootstrap_servers="localhost:9092", topics=["orders"], group_id="billing", workers=10, order="key",
        adaptive=True, heavy_lag=None, kafka={"client.id": "me", "linger.ms": 5}, config="pool.toml",
        errors={TimeoutError: "retry"},
    )
    await pool.run(handle)
    lag: int | None = pool.stats().lag
    store = KafkaBlackboardStore("localhost:9092", transactions=True, topic_prefix="team.", index_path=None)
    agents: Orchestrator = Orchestrator(store, workers=5, heavy_lag=100)
    artifact: Artifact = forebay.Artifact("Order", {"n": 1}, "shop")
    await store.publish(artifact)

with forebay.DevStack(registry=True, broker_port=9092) as stack, forebay.connect("home", "local[2]") as db:
    rows: list[tuple[object, ...]] = db.sql("SELECT 1").fetchall()
    forebay.Pool(bootstrap_servers=stack.bootstrap_servers, topic="t", group_id="g")
"""

WRONG = """
import forebay
forebay.Pool(worker=3)
forebay.Pool(workers="many")
forebay.Pool(order="keys")
forebay.Pool(heavy_workers=None)
forebay.Pool(kafka=["client.id"])
forebay.KafkaBlackboardStore(topic_prefx="a")
forebay.KafkaBlackboardStore(transactions="yes")
forebay.KafkaBlackboardStore("a:9092", consistency="mine")
forebay.connect(hom="x")
forebay.DevStack(broker_port="9092")
forebay.Orchestrator(forebay.KafkaBlackboardStore(), max_attempts=3)
"""


def test_mypy_takes_what_is_right_and_finds_each_mistake(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM)
    wrong.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    # As a user's project has it: none of our settings, and nothing that our mypy has cached.
    command += ["--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent"]
    done = subprocess.run([*command, str(right), str(wrong)], capture_output=True, text=True, cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line for line in found if line.startswith("right.py")] == []
    lines = {int(line.split(":")[1]) for line in found if line.startswith("wrong.py")}
    assert lines == set(range(3, len(WRONG.splitlines()) + 1)), done.stdout
    assert 'Unexpected keyword argument "worker"' in done.stdout
