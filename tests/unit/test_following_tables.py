"""Tables follow the groups of their views within `view.freshness`, whatever the tables of other views do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from forebay.catalog import Catalog
from forebay.catalog.catalog import Definition
from forebay.connectors.contract import SourceConfig
from forebay.connectors.datagen import DatagenSource
from forebay.program import Grouping
from forebay.runtime.following_tables import AT_ONCE, LOOK_S, Publishing
from forebay.runtime.group_view import SHARE, SLOWER, GroupView, next_publish
from forebay.runtime.home import Home
from forebay.runtime.read_answer import BatchAnswer
from forebay.source.late_rows import LateTarget
from forebay.source.serving import BatchHeader
from forebay.sql import parse_one, program_for
from forebay.views.paths import paths_of

QUERY = "SELECT k, count(*) AS n FROM s GROUP BY k"
SCHEMA = pa.schema([("k", pa.int64())])
View = TypeVar("View", bound=GroupView)


def view_of(home: Path, name: str, freshness_s: float, kind: type[View]) -> View:
    program = program_for(parse_one(QUERY).query, SCHEMA)
    assert isinstance(program, Grouping)
    source = DatagenSource(SourceConfig("s", "datagen", {}, SCHEMA))
    found = kind(
        name, paths_of(home, name), "s", source, program, lambda: program, lambda *_: None, 60.0,
        event_time=None, late=LateTarget(), keys=("k",), freshness_s=freshness_s,
    )  # fmt: skip
    found.prepare(is_new=True)
    catalog = Catalog(home / "catalog.db")
    detail = {"sources": ["s"], "emit": "changes", "keys": ["k"], "program": program.to_json()}
    catalog.put(Definition(name, "view", f"CREATE MATERIALIZED VIEW {name} AS\n{QUERY}", 0, detail))
    catalog.close()
    return found


def keep(view: GroupView, batch: int, key: int = 1) -> None:
    groups = pa.RecordBatch.from_pylist([{"_key_0": key, "_part_0": 1}])
    view.keep(BatchAnswer(BatchHeader({}, {}, {}), (), groups={view.name: [groups]}), "q", batch)


class Slow(GroupView):
    """Its table is written when `free` is set."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.begun, self.free = threading.Event(), threading.Event()

    def publish(self) -> None:
        self.begun.set()
        self.free.wait(60)
        super().publish()


class Timed(GroupView):
    """Knows when its table was written."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.writes: list[tuple[float, float]] = []

    def publish(self) -> None:
        began = time.monotonic()
        super().publish()
        self.writes.append((began, time.monotonic()))


@pytest.fixture
def publishing() -> Iterator[list[GroupView]]:
    """Views that are followed."""
    views: list[GroupView] = []
    threads = Publishing(lambda: list(views))
    yield views
    for view in views:
        if isinstance(view, Slow):
            view.free.set()
    threads.close()


def test_a_table_that_takes_long_does_not_hold_up_others(tmp_path: Path, publishing: list[GroupView]) -> None:
    slow = view_of(tmp_path, "slow", 0.5, Slow)
    keep(slow, 0)
    publishing.append(slow)
    assert slow.begun.wait(30)
    others = [view_of(tmp_path, f"other_{number}", 0.5, GroupView) for number in range(AT_ONCE + 1)]
    for view in others:
        keep(view, 0)
    publishing += others
    eventually(lambda: all(view.groups.staleness_s() == 0 for view in others), "the others are up to date")
    assert slow.groups.staleness_s() > 0


def test_a_change_is_in_the_table_within_the_freshness_while_batches_go_on(
    tmp_path: Path, publishing: list[GroupView]
) -> None:
    """By the times of the writes themselves: a busy machine makes each of them longer."""
    view = view_of(tmp_path, "busy", 1.0, Timed)
    publishing.append(view)
    batches = count()

    def gone_on() -> bool:
        keep(view, next(batches))
        return len(view.writes) > 5

    eventually(gone_on, "the table is written again and again", pause=0)
    for (began, ended), (next_began, _) in pairwise(view.writes):
        due = next_publish(began, ended - began, 1.0)
        assert next_began >= ended
        assert next_began - max(due, ended) < 1, "no later than it is due, but for a pause of the machine"


@given(st.floats(0, 100), st.floats(0.5, 600))
def test_a_write_begins_early_enough_to_end_within_the_freshness(took: float, freshness_s: float) -> None:
    due = next_publish(1000.0, took, freshness_s)
    assert due + SLOWER * took + LOOK_S <= 1000.0 + freshness_s + 1e-6
    assert due - 1000.0 <= (1 + SHARE) * took + 1e-6


def test_how_far_a_table_is_behind_is_counted_from_the_first_change_that_it_does_not_have(
    tmp_path: Path,
) -> None:
    view = view_of(tmp_path, "counts", 60.0, GroupView)
    keep(view, 0)
    view.publish()

    def behind() -> float:
        with Home(tmp_path) as home:
            notes = home.run(parse_one("DESCRIBE EXTENDED VIEW counts")).notes
        [said] = [note for note in notes if note.startswith("Behind the groups: ")]
        return float(said.removeprefix("Behind the groups: ").removesuffix(" s"))

    assert behind() == 0.0
    published = time.monotonic()
    eventually(lambda: time.monotonic() > published + 1, "some time goes by without a change")
    changed = time.monotonic()
    keep(view, 1)
    said = behind()
    assert said <= time.monotonic() - changed + 0.1
    eventually(lambda: behind() >= 0.3, "it gets older")
    keep(view, 2)
    assert behind() >= 0.3  # a further change does not make it younger
    view.publish()
    assert behind() == 0.0
