"""Tables of groups: closed windows, sums that overflow, what is kept, and what a batch costs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from forebay.errors import ChangesGoneError, SumOverflowError
from forebay.views.groups import index, memory
from forebay.views.groups import log as group_log
from forebay.views.groups.fold import FAN, plan
from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.groups.log import Run, newest_of
from forebay.views.groups.publishing import SMALL
from forebay.views.lease import fence
from forebay.views.table import ViewTable

COUNTS = GroupLayout(
    pa.schema([("k", pa.int64())]),
    (PartColumn("n", "sum", pa.int64()), PartColumn("total", "sum", pa.float64())),
)
START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = GroupLayout(
    pa.schema([("k", pa.int64()), ("end", pa.timestamp("us", "UTC"))]),
    (PartColumn("n", "sum", pa.int64()),),
    window_end="end",
)


def made(
    root: Path, layout: GroupLayout = COUNTS, keep_s: float = 3600, retention_s: float = 0
) -> GroupTable:
    public = ViewTable(root / "table")
    keys = tuple(layout.keys.names)
    table = GroupTable(root, layout, lambda rows: rows, public, keys, keep_s=keep_s, retention_s=retention_s)
    if not table.exists():
        feed = {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(str(public.path), schema=layout.schema, configuration=feed)
        table.create()
    return table


def counts(keys: list[int] | np.ndarray, each: int = 1) -> pa.RecordBatch:
    size = len(keys)
    columns = {"k": np.asarray(keys, np.int64), "n": np.full(size, each), "total": np.full(size, 0.1)}
    return pa.record_batch(columns, schema=COUNTS.schema)


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def micros(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000


def windows(rows: list[tuple[int, datetime | None, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip("kwn", row, strict=True)) for row in rows]).rename_columns(
        ["k", "end", "n"]
    )


def total(table: pa.Table) -> int:
    return int(pc.sum(table.column("n")).as_py() or 0)


def test_a_closed_window_leaves_the_memory_and_stays_in_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SHRINK_FROM", 10)
    table = made(tmp_path, WINDOWS)
    for batch in range(50):
        rows = [(key, minute(batch + 1), 1) for key in range(10)]
        table.apply([windows(rows)], "q", batch, {}, micros(minute(batch - 1)))
        if batch % 7 == 0:
            table.publish()
    table.publish()
    assert table.open_groups <= 100
    assert made(tmp_path, WINDOWS).open_groups == 20  # of the windows behind the watermark, minute 48
    assert table.rows().num_rows == 500
    assert DeltaTable(str(tmp_path / "table")).count() == 500
    while table.tidy():
        pass
    assert table.rows().num_rows == total(table.rows()) == 500


@pytest.mark.parametrize("groups", [5, SMALL + 1])
def test_groups_go_on_as_they_were_after_another_driver_was_fenced_off(tmp_path: Path, groups: int) -> None:
    table = made(tmp_path)
    table.apply([counts(np.arange(groups))], "q", 0, {"end": "here"})
    table.publish()
    for path in (tmp_path / "table", tmp_path / "log"):
        fence(path, 2)
    again = made(tmp_path)
    assert dict(again.state.metadata) == {"end": "here"}
    assert again.holds("q", 0)
    again.apply([counts([0, groups])], "q", 1, {"end": "there"})
    again.publish()
    for found in (again.rows(), made(tmp_path).rows()):
        assert (found.num_rows, total(found)) == (groups + 1, groups + 2)
    assert polars.read_delta(str(tmp_path / "table")).height == groups + 1


def test_rows_of_a_window_that_has_left_the_memory_are_added_to_it_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SHRINK_FROM", 1)
    table = made(tmp_path, WINDOWS)
    table.apply([windows([(1, minute(1), 1), (1, minute(2), 1)])], "q", 0, {}, None)
    table.publish()
    table.apply([windows([(1, minute(9), 1)])], "q", 1, {}, micros(minute(8)))
    table.publish()
    assert made(tmp_path, WINDOWS).open_groups == 1
    back = made(tmp_path, WINDOWS)
    assert (
        back.apply([windows([(1, minute(1), 5), (2, minute(1), 5)])], "q", 2, {}, micros(minute(8))).changed
        == 2
    )
    # Further rows of old windows find them in memory; once there are none, they leave it again.
    assert back.open_groups == 4
    back.apply([windows([(1, minute(2), 5)])], "q", 3, {}, micros(minute(8)))
    back.publish()
    back.apply([windows([(1, minute(9), 1)])], "q", 4, {}, micros(minute(8)))
    back.publish()
    assert made(tmp_path, WINDOWS).open_groups == 1
    found = {(row["k"], row["end"]): row["n"] for row in made(tmp_path, WINDOWS).rows().to_pylist()}
    assert found == {(1, minute(1)): 6, (2, minute(1)): 5, (1, minute(2)): 6, (1, minute(9)): 2}
    assert DeltaTable(str(tmp_path / "table")).count() == 4


def test_a_sum_beyond_bigint_is_an_error_and_nothing_of_the_batch_is_written(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.apply([counts([1, 2], 2**62)], "q", 0)
    with pytest.raises(SumOverflowError, match="sum 'n' of a group is beyond int64"):
        table.apply([counts([3], 1), counts([2], 2**62)], "q", 1)
    assert not table.holds("q", 1)
    assert table.apply([counts([1], 2**62 - 1)], "q", 1).changed == 1
    assert sorted(table.rows().column("n").to_pylist()) == [2**62, 2**63 - 1]


def test_a_decimal_sum_beyond_its_digits_is_an_error(tmp_path: Path) -> None:
    layout = GroupLayout(pa.schema([]), (PartColumn("total", "sum", pa.decimal128(38, 0)),))
    table = made(tmp_path, layout)
    row = pa.record_batch({"total": pa.array([Decimal(9 * 10**37)], pa.decimal128(38, 0))})
    table.apply([row], "q", 0)
    with pytest.raises(SumOverflowError):
        table.apply([row], "q", 1)
    assert table.rows().column("total").to_pylist() == [Decimal(9 * 10**37)]


def test_folding_is_no_change_for_a_subscriber(tmp_path: Path) -> None:
    table = made(tmp_path)
    for batch in range(2 * FAN):
        table.apply([counts([batch % 3])], "q", batch)
        table.tidy()
    changes = [table.changes(version) for version in range(table.version() + 1)]
    sizes = [each.num_rows for each in changes]
    assert sum(sizes) == 3 + 2 * (2 * FAN - 3)
    assert sizes.count(0) > 1  # the table's first version, and those that folded


def test_changes_are_kept_for_the_retention_as_long_as_they_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, keep_s=0, retention_s=3600)
    for batch in range(3 * FAN):
        table.apply([counts([batch])], "q", batch)
        table.tidy()
    assert [table.changes(version).num_rows for version in range(table.version() + 1)].count(1) == 3 * FAN
    monkeypatch.setattr(group_log, "MOST_CHANGES", 5)
    for batch in range(3 * FAN, 3 * FAN + 4):  # the first says what may go, and the next lets it go
        table.apply([counts([batch])], "q", batch)
        table.tidy()
    with pytest.raises(ChangesGoneError, match="version 1 "):
        table.changes(1)
    newest = [table.changes(version).num_rows for version in range(table.version() - 4, table.version() + 1)]
    assert newest.count(1) >= 4
    assert table.rows().num_rows == 3 * FAN + 4


def test_changes_that_are_not_kept_any_more_are_an_error_that_says_so(tmp_path: Path) -> None:
    table = made(tmp_path, keep_s=0)
    for batch in range(3 * FAN):
        table.apply([counts([batch])], "q", batch)
        assert table.changes(table.version()).num_rows == 1
        table.tidy()
    with pytest.raises(ChangesGoneError, match="version 1 "):
        made(tmp_path).changes(1)
    assert table.rows().num_rows == 3 * FAN


def test_keys_whose_hashes_are_equal_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "hashes", lambda keys, rows: np.zeros(rows, np.uint64))
    table = made(tmp_path)
    for batch in range(4):
        table.apply([counts(list(range(batch, 20 + batch)))], "q", batch)
    assert total(table.rows()) == 80
    assert table.rows().num_rows == 23


def test_the_index_finds_every_hash_in_its_slot_and_no_other() -> None:
    chance = np.random.default_rng(7)
    known = np.unique(chance.integers(0, 2**63, 30_000, np.uint64))
    found = index.SlotIndex()
    for part in np.array_split(known, 11):
        found.append(part)
    anything = lambda rows, slots: np.ones(len(rows), np.bool_)  # noqa: E731
    assert (found.find(known, anything) == np.arange(len(known))).all()
    assert (found.find(known + np.uint64(2**63), anything) == index.NONE).all()


def test_the_newest_row_of_each_group_is_found_however_far_apart_numbers_are() -> None:
    close, far = np.array([1, 2, 1, 3, 2]), np.array([1, 2**40, 1, 3, 2**40])
    assert newest_of(close).tolist() == newest_of(far).tolist() == [False, False, True, True, True]


def test_runs_of_one_size_are_folded_and_a_large_one_is_left_alone() -> None:
    def run(first: int, rows: int) -> Run:
        return Run(f"{first}", first, first, rows, rows * 20)

    base = run(0, 10_000_000)
    small = [run(number, 1000) for number in range(1, FAN + 1)]
    assert list(plan([base, *small])) == small
    assert not plan([base, *small[1:]])
    middle = [run(number, 600_000) for number in range(1, FAN)]
    assert plan([base, *middle, *[run(number, 2_000_000) for number in (20, 21)]])[0] == base


def test_the_public_table_says_which_batch_it_is_of_and_how_old_it_is(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.apply([counts([1])], "q", 0, {"offsets": "5"})
    table.publish()
    said = ViewTable(tmp_path / "table").newest_metadata()
    assert said["offsets"] == "5"
    assert table.staleness_s() == 0
    table.apply([counts([1])], "q", 1, {"offsets": "6"})
    reader = made(tmp_path)
    assert 0 < reader.staleness_s() < time.time() - reader.published_at + 1
    assert made(tmp_path).publish() is not False
    assert reader.staleness_s() == 0


def test_a_public_table_of_many_groups_is_brought_up_to_date_for_the_price_of_what_changed(
    tmp_path: Path,
) -> None:
    groups, chance = 3 * SMALL, np.random.default_rng(3)
    table, seen, path = made(tmp_path), dict[Path, int](), str(tmp_path / "table")
    table.apply([counts(np.arange(groups))], "q", 0)
    table.publish()
    whole = _written(tmp_path / "table", seen)
    changed = 0
    for batch, size in enumerate(
        (10, groups // 2, 10), 1
    ):  # few rows of a file are a list in its vector, many are bits
        table.apply([counts(chance.choice(groups, size, replace=False))], "q", batch)
        assert table.publish()
        changed += size
        for rows in (pa.table(DeltaTable(path).scan()), polars.read_delta(path).to_arrow()):
            assert rows.num_rows == groups
            assert pc.sum(rows.column("n")).as_py() == groups + changed
            assert pc.count_distinct(rows.column("k")).as_py() == groups
        written = _written(tmp_path / "table", seen)
        assert written < whole / 10 or size > 10
        if batch == 2:
            table = made(tmp_path)  # whose rows are whose is known after a restart
    before = DeltaTable(path).version()
    while table.tidy():
        pass
    assert len(DeltaTable(path).file_uris()) <= FAN
    assert pc.sum(pa.table(DeltaTable(path).scan()).column("n")).as_py() == groups + changed
    assert DeltaTable(path).version() >= before


def _written(root: Path, seen: dict[Path, int]) -> int:
    """Bytes of files that were not there before."""
    new = {path: path.stat().st_size for path in root.rglob("*") if path.is_file() and path not in seen}
    seen |= new
    return sum(new.values())


@pytest.mark.parametrize("groups", [10_000, 300_000])
def test_what_is_written_is_at_most_ten_times_the_change(tmp_path: Path, groups: int) -> None:
    table = made(tmp_path)
    chance = np.random.default_rng(1)
    table.apply([counts(np.arange(groups))], "q", 0)
    log, seen = tmp_path / "log", dict[Path, int]()
    _written(log, seen)
    changed = written = 0
    for batch in range(1, 81):
        rows = counts(chance.choice(groups, 1000, replace=False))
        changed += rows.nbytes
        table.apply([rows], "q", batch)
        table.tidy()
        written += _written(log, seen)
    assert written < 10 * changed


def test_a_batch_costs_the_same_however_many_groups_there_are(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    tables = {}
    for groups in (10_000, 1_000_000):
        tables[groups] = made(tmp_path / str(groups))
        tables[groups].apply([counts(np.arange(groups))], "q", 0)
    took: dict[int, list[float]] = {groups: [] for groups in tables}
    for batch in range(1, 31):
        for groups, table in tables.items():
            rows = counts(chance.choice(groups, 1000, replace=False))
            began = time.process_time()
            table.apply([rows], "q", batch)
            took[groups].append(time.process_time() - began)
    assert np.median(took[1_000_000]) < 3 * np.median(took[10_000])
