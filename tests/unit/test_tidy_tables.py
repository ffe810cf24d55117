"""A view's table stays small: few files, a short log, nothing past its retention; and nobody who reads it loses a row."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import inside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from forebay import threads
from forebay.errors import ChangesGoneError, OptionValueError
from forebay.source import parquet_file
from forebay.source.parquet_file import ParquetFile
from forebay.source.spark_types import from_spark
from forebay.views import compaction, merged, tidy, versions
from forebay.views.changes import Subscription, TableChanges
from forebay.views.compaction import FAN, LARGE, MOST_BYTES, MOST_FILES, DataFile, due
from forebay.views.delta_entry import now_ms
from forebay.views.options import RETENTION_S, VIEW
from forebay.views.table import ViewTable

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
WEEK_S = 7 * 86_400.0


def made(tmp_path: Path, retention_s: float = WEEK_S, schema: pa.Schema = SCHEMA) -> ViewTable:
    table = ViewTable(tmp_path / "v" / "table", retention_s)
    table.create(schema)
    return table


def rows(*numbers: int) -> pa.Table:
    return pa.table({"k": [f"k{n % 7}" for n in numbers], "n": pa.array(numbers, pa.int64())})


def append(table: ViewTable, batch: int, *, wait: bool = True, **more: dict[str, str]) -> None:
    """With `wait`, the table is tidied afterwards if it is time to."""
    written = []
    for found in inside.parquet_writer(str(table.path), batch)(iter(rows(batch).to_batches())):
        written += [(row["path"], row["size"], row["stats"]) for row in found.to_pylist()]
    table.add(written, "q", batch, **more)
    if wait:
        table.settle()


def append_many(table: ViewTable, batches: int) -> None:
    for batch in range(batches):
        append(table, batch)


def merge(table: ViewTable, batch: int, **more: dict[str, str]) -> None:
    table.merge(rows(batch), ("k",), "q", batch, **more)


def contents(path: Path) -> list[tuple[str, int]]:
    found = DeltaTable(str(path)).to_pyarrow_table()
    return sorted(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


def expected(way: Callable[..., None], batches: int) -> list[tuple[str, int]]:
    if way is append:
        return sorted((f"k{n % 7}", n) for n in range(batches))
    return sorted({f"k{n % 7}": n for n in range(batches)}.items())


def on_disk(table: ViewTable) -> list[Path]:
    return [path for path in table.path.rglob("*.parquet") if "_delta_log" not in path.parts]


def changes(table: ViewTable, after: int | None = None) -> list[dict[str, object]]:
    with Subscription(TableChanges(ViewTable(table.path)), after=after, timeout=0) as found:
        return [row for batch in found for row in batch.to_pylist()]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step after every fourth batch, merges of four files, a checkpoint for ten versions and short segments."""
    monkeypatch.setitem(tidy.PROPERTIES, "delta.checkpointInterval", "10")
    monkeypatch.setattr(tidy, "EVERY", 4)
    monkeypatch.setattr(compaction, "FAN", 4)
    monkeypatch.setattr(versions, "LIVE", 10)
    monkeypatch.setattr(versions, "SEGMENT", 8)


@pytest.mark.parametrize(("way", "batches"), [(append, 400), (merge, 100)])
def test_after_many_batches_there_are_few_files(
    way: Callable[..., None], batches: int, tmp_path: Path
) -> None:
    table = made(tmp_path, retention_s=0)
    for batch in range(batches):
        way(table, batch)
        if batch % 100 == 99:
            assert len(table.files()) <= 100
    assert len(on_disk(table)) <= 150
    assert len(list((table.path / "_delta_log").iterdir())) < 400
    assert contents(table.path) == expected(way, batches)
    assert table.holds("q", batches - 1)


def test_numbers_and_times_are_written_without_the_dictionary_that_makes_them_large(tmp_path: Path) -> None:
    numbers = pa.table(
        {"n": [n * 7919 for n in range(50_000)], "at": pa.array(range(50_000), pa.timestamp("us"))}
    )
    file = ParquetFile(tmp_path, "part")
    file.add(numbers.to_batches()[0])
    written = file.close()
    assert written is not None
    pq.write_table(numbers, tmp_path / "default.parquet", compression="zstd")
    assert written.size * 2 < (tmp_path / "default.parquet").stat().st_size
    assert pq.read_table(tmp_path / written.path).equals(numbers)


@pytest.mark.parametrize("closed", [True, False])
def test_a_file_of_a_task_that_failed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setattr(parquet_file, "ROWS", 1)  # written as soon as there is a row
    file = ParquetFile(tmp_path, "part")
    file.add(rows(1).to_batches()[0])
    if closed:
        file.close()
    assert len(list(tmp_path.iterdir())) == 1
    file.discard()
    assert list(tmp_path.iterdir()) == []
    ParquetFile(tmp_path, "part").discard()


@pytest.mark.usefixtures("often")
def test_files_that_were_merged_go_at_once_and_subscribers_find_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    monkeypatch.setattr(tidy, "MERGED_MS", 0)
    for batch in range(300):
        append(table, batch)
    assert len(on_disk(table)) <= 60, "of 300 that were written, with a retention of a week"
    assert contents(table.path) == expected(append, 300)
    found = changes(table)
    assert [row["n"] for row in found] == [*range(300)]
    position = next(row["_commit_version"] for row in found if row["n"] == 137)
    assert isinstance(position, int)
    assert [row["n"] for row in changes(table, after=position)] == [*range(138, 300)]
    assert len(list((table.path / "_forebay" / "merged").iterdir())) <= len(table.files())


@pytest.mark.usefixtures("often")
def test_files_that_an_earlier_version_merged_stay_for_the_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    with monkeypatch.context() as before:  # it did not say where the rows went, and removed nothing
        before.setattr(merged.MergedFiles, "write", lambda *_: None)
        before.setattr(versions.Versions, "begin_merging", lambda *_: None)
        before.setattr(versions.Versions, "remove_merged", lambda *_: None)
        for batch in range(40):
            append(table, batch)
    monkeypatch.setattr(tidy, "MERGED_MS", 0)
    table = ViewTable(table.path, WEEK_S)
    for batch in range(40, 100):
        append(table, batch)
    assert [row["n"] for row in changes(table)] == [*range(100)]
    assert contents(table.path) == expected(append, 100)


@pytest.mark.usefixtures("often")
def test_a_merge_that_was_cut_off_misleads_no_subscriber(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    monkeypatch.setattr(tidy, "MERGED_MS", 0)
    for batch in range(12):
        append(table, batch)
    known = merged.MergedFiles(table.path, table.path / "_forebay" / "merged")
    known.write("a-merge-without-its-file.parquet", [(path.name, 1) for path in on_disk(table)])
    for batch in range(12, 60):
        append(table, batch)
    assert [row["n"] for row in changes(table)] == [*range(60)]


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("way", [append, merge])
def test_merging_files_is_no_change_that_a_subscriber_sees(way: Callable[..., None], tmp_path: Path) -> None:
    table = made(tmp_path)
    for batch in range(60):
        way(table, batch)
    assert any(
        version.dropped and not version.files() - {*version.dropped}
        for version in versions.Versions(table.path).all()
    )
    added = Counter(
        row["n"] for row in changes(table) if row["_change_type"] in ("insert", "update_postimage")
    )
    assert added == dict.fromkeys(range(60), 1)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("way", [append, merge])
def test_the_changes_are_those_of_deltas_own_change_feed(
    way: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "LIVE", 1_000)  # deltalake knows no segments
    table = made(tmp_path)
    for batch in range(30):
        way(table, batch)
    feed = pa.table(DeltaTable(str(table.path)).load_cdf(starting_version=0)).drop_columns(
        ["_commit_timestamp"]
    )
    assert sorted(changes(table), key=str) == sorted(feed.select(["k", "n", "_change_type", "_commit_version"]).to_pylist(), key=str)  # fmt: skip


@pytest.mark.usefixtures("often")
def test_a_subscriber_resumes_at_any_version_within_the_retention(tmp_path: Path) -> None:
    table = made(tmp_path)
    for batch in range(90):  # old versions are in segments
        append(table, batch)
        assert len(list((table.path / "_delta_log").glob("*.json"))) >= min(batch, versions.LIVE)
    assert len(list((table.path / "_delta_log").glob("*.json"))) < 50
    assert [row["n"] for row in changes(table)] == [*range(90)]
    everything = changes(table)
    for after in (0, 9, 10, 37, 70):
        assert changes(table, after) == [row for row in everything if row["_commit_version"] > after]


@pytest.mark.usefixtures("often")
def test_a_subscriber_past_the_retention_hears_which_version_is_the_oldest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path, retention_s=0)
    for batch in range(60):
        append(table, batch)
    oldest = versions.Versions(table.path).oldest()
    assert oldest > 20
    with pytest.raises(
        ChangesGoneError, match=f"version 4 of view 'v' .* the oldest that is there is {oldest}"
    ):
        changes(table, 3)
    with caplog.at_level(logging.INFO, "forebay.views"):
        subscription = Subscription(TableChanges(ViewTable(table.path)), timeout=0)
    assert subscription.position == oldest - 1
    assert f"the changes begin with version {oldest}" in caplog.text


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("way", [append, merge])
def test_who_opened_the_table_before_files_were_merged_still_reads_them(
    way: Callable[..., None], tmp_path: Path
) -> None:
    table = made(tmp_path)
    for batch in range(10):
        way(table, batch)
    code = (
        "import sys; from deltalake import DeltaTable; t = DeltaTable(sys.argv[1]); print('open', flush=True);"
        "sys.stdin.readline(); print(sorted(t.to_pyarrow_table()['n'].to_pylist()), flush=True);"
        "t.update_incremental(); print(sorted(t.to_pyarrow_table()['n'].to_pylist()), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(table.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        for batch in range(10, 70):
            way(table, batch)
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert json.loads(reader.stdout.readline()) == sorted(n for _, n in expected(way, 10))
        assert json.loads(reader.stdout.readline()) == sorted(n for _, n in expected(way, 70))


@pytest.mark.usefixtures("often")
def test_a_batch_does_not_wait_until_the_table_is_tidied_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, begun, go_on = made(tmp_path), threading.Event(), threading.Event()
    real = compaction.merge

    def merged_later(*args: Any, **how: Any) -> compaction.Merge:
        begun.set()
        assert go_on.wait(30)
        return real(*args, **how)

    monkeypatch.setattr(compaction, "merge", merged_later)
    batch = 0
    while not begun.is_set():
        append(table, batch, wait=False)
        batch += 1
        begun.wait(0.05)
    assert contents(table.path) == expected(append, batch), "while it is being tidied"
    following = threads.start("next", lambda: append(table, batch, wait=False), lambda error: None)
    following.join(0.2)
    assert following.is_alive()
    go_on.set()
    following.join(30)
    table.settle()
    assert contents(table.path) == expected(append, batch + 1)
    assert len(table.files()) < batch


@pytest.mark.usefixtures("often")
def test_what_tidying_ended_with_is_an_error_of_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(compaction, "due", lambda files: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            append_many(table, 2 * tidy.EVERY)
    done = len(contents(table.path))
    assert done > 0
    for batch in range(done, done + 10):
        append(table, batch)
    assert contents(table.path) == expected(append, done + 10)


def test_what_a_killed_task_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    table = made(tmp_path)
    for batch in range(3):
        append(table, batch)
    merge(table, 9)  # rewrites a file
    long_ago = time.time() - 30 * 86_400
    for path in on_disk(table):
        os.utime(path, (long_ago, long_ago))
    known = {*on_disk(table)}
    for name, age in (("part-old.parquet", 30 * 86_400), ("part-young.parquet", 3600)):
        pq.write_table(rows(1), table.path / name)
        os.utime(table.path / name, (time.time() - age,) * 2)
    tidy.sweep(table.path, now_ms())
    assert {*on_disk(table)} == {*known, table.path / "part-young.parquet"}
    assert len(changes(table)) > 3


@pytest.mark.usefixtures("often")
def test_a_table_of_an_earlier_version_is_tidied_too(tmp_path: Path) -> None:
    path = tmp_path / "v" / "table"
    path.mkdir(parents=True)
    DeltaTable.create(str(path), rows(1).schema, configuration={"delta.enableChangeDataFeed": "true"})
    table = ViewTable(path, 0)
    for batch in range(60):
        append(table, batch)
    assert len(table.files()) < 30
    assert table.open().metadata().configuration.items() >= tidy.PROPERTIES.items()
    assert contents(path) == expected(append, 60)


@pytest.mark.usefixtures("often")
def test_files_from_before_a_column_was_added_are_merged_with_later_ones(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64())])
    table = made(tmp_path, schema=pa.schema([("n", pa.int64()), ("s", inner)]))
    wider = pa.struct([("a", pa.int64()), ("b", pa.string())])

    def write(batch: int, data: pa.Table) -> None:
        written = []
        for found in inside.parquet_writer(str(table.path), batch)(iter(data.to_batches())):
            written += [(row["path"], row["size"], row["stats"]) for row in found.to_pylist()]
        table.add(written, "q", batch)
        table.settle()

    for batch in range(6):
        write(batch, pa.table({"n": [batch], "s": [{"a": batch}]}))
    table.widen(pa.schema([("n", pa.int64()), ("s", wider), ("m", pa.string())]))
    for batch in range(6, 20):
        write(batch, pa.table({"n": [batch], "s": [{"a": batch, "b": "x"}], "m": ["y"]}))
    assert len(table.files()) < 12
    found = sorted(DeltaTable(str(table.path)).to_pyarrow_table().to_pylist(), key=lambda row: row["n"])
    assert found == [{"n": n, "s": {"a": n, "b": "x" if n > 5 else None}, "m": "y" if n > 5 else None} for n in range(20)]  # fmt: skip
    assert [row["n"] for row in changes(table)] == [*range(20)]


@pytest.mark.usefixtures("often")
def test_files_with_columns_of_every_type_are_merged_and_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = t.StructType(
        [t.StructField("x", t.IntegerType(), nullable=False), t.StructField("y", t.DateType())]
    )
    kinds = [
        t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(), t.FloatType(), t.DoubleType(),
        t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType(), t.DecimalType(12, 3),
        inner, t.ArrayType(t.StringType(), containsNull=False), t.ArrayType(inner), t.MapType(t.StringType(), inner),
    ]  # fmt: skip
    schema = from_spark(t.StructType([t.StructField(f"c{place}", kind) for place, kind in enumerate(kinds)]))
    table = made(tmp_path, schema=schema)
    at = datetime(2026, 1, 2, 3, 4, 5, 678, ZoneInfo("UTC"))
    nested = {"x": 1, "y": at.date()}
    row = [
        True, 1, 2, 3, 4, 0.5, 0.25, "s", b"b", at.date(), at, at.replace(tzinfo=None), Decimal("1.234"), nested, ["e"],
        [nested], [("k", nested)],
    ]  # fmt: skip
    fields = schema
    for batch in range(9):
        values = [None] * len(row) if batch == 3 else row
        columns = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
        written = []
        rows_of = pa.RecordBatch.from_arrays(columns, schema=fields)
        for found in inside.parquet_writer(str(table.path), batch)(iter([rows_of])):
            written += [(each["path"], each["size"], each["stats"]) for each in found.to_pylist()]
        table.add(written, "q", batch)
        table.settle()
    assert not [line for line in caplog.messages if "could not be tidied" in line]
    assert len(table.files()) < 6
    expected_rows = sorted(map(str, [row] * 8 + [[None] * len(row)]))
    got = DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()
    assert sorted(str([*each.values()]) for each in got) == expected_rows
    assert sorted(str([*each.values()][:-2]) for each in changes(table)) == expected_rows


@pytest.mark.usefixtures("often")
def test_the_metadata_of_the_newest_batch_is_found_behind_merges(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.newest_metadata() == {}
    append(table, 0)
    assert table.newest_metadata() == {}
    for batch in range(1, 30):
        append(table, batch, metadata={"offsets": json.dumps({"end": batch})})
        assert ViewTable(table.path).newest_metadata() == {"offsets": f'{{"end": {batch}}}'}
    merge(table, 30, metadata={"offsets": "x"})
    assert table.newest_metadata() == {"offsets": "x"}
    merge(table, 31)
    assert table.newest_metadata() == {"offsets": "x"}


def test_a_table_says_how_large_it_is(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert (table.size().files, table.size().size, table.size().vacuumed_ms) == (0, 0, 0)
    append(table, 0)
    found = table.size()
    assert (found.files, found.size) == (1, sum(path.stat().st_size for path in on_disk(table)))
    for batch in range(1, tidy.EVERY):
        append(table, batch)
    found = table.size()
    assert abs(found.vacuumed_ms - now_ms()) < 60_000


files = st.builds(
    DataFile,
    path=st.uuids().map(str),
    size=st.integers(1, 2 * LARGE),
    rows=st.integers(0, 10**8),
    modified=st.integers(0, 10**6),
)


@given(st.lists(files, max_size=400))
def test_one_merge_is_bounded_and_takes_files_of_one_tier_oldest_first(found: list[DataFile]) -> None:
    taken = due(found)
    small = Counter(file.tier for file in found if file.size < LARGE)
    assert bool(taken) == any(count >= FAN for count in small.values())
    if taken:
        assert 2 <= len(taken) <= MOST_FILES
        assert sum(file.size for file in taken) <= MOST_BYTES
        [tier] = {file.tier for file in taken}
        left = [file for file in found if file.tier == tier and file.size < LARGE and file not in taken]
        assert all(file.modified >= taken[-1].modified for file in left)


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=600), st.integers(1, 64))
def test_a_row_is_rewritten_a_logarithmic_number_of_times(counts: list[int], every: int) -> None:
    """As the writer does it: files come one by one, and now and then all that is due is merged."""
    held: list[DataFile] = []
    rewritten: dict[str, int] = {}
    for number, count in enumerate(counts):
        held.append(DataFile(f"f{number}", count, count, number))
        rewritten[f"f{number}"] = 0
        while number % every == 0 and (taken := due(held)):
            name = f"m{number}-{len(rewritten)}"
            total = sum(file.rows for file in taken)
            rewritten[name] = 1 + max(rewritten[file.path] for file in taken)
            held = [file for file in held if file not in taken] + [DataFile(name, total, total, number)]
    most = DataFile("", 1, max(sum(counts), 1), 0).tier
    assert max(rewritten[file.path] for file in held) <= most
    assert len(held) < every + FAN * (most + 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7 days", 604_800), ("1 day", 86_400), ("12 Hours", 43_200), (" 30 minutes ", 1800), ("0 seconds", 0), ("2 weeks", 1_209_600)],
)  # fmt: skip
def test_a_length_of_time_has_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert VIEW.bind({"retention": text})["retention"] == seconds
    assert VIEW.bind({})["retention"] == RETENTION_S


@pytest.mark.parametrize("text", ["", "7", "days", "-1 days", "1.5 days", "1 month", "7days ago"])
def test_a_length_of_time_without_either_is_refused(text: str) -> None:
    with pytest.raises(OptionValueError, match="such as '7 days', '12 hours' or '30 minutes'"):
        VIEW.bind({"retention": text})
