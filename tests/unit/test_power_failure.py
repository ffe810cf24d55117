"""What the checkpoint may know of is on the disk: files that were forced there, and nothing else, must do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import inside
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from made import a_letter
from power import Disk

import forebay
from forebay import sql
from forebay.deadletter.destinations import FileDestination
from forebay.deadletter.letter import Letter
from forebay.errors import CheckpointError
from forebay.files import Draft, make_folder, write_whole
from forebay.views import compaction, tidy
from forebay.views.table import ViewTable

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_file_that_is_written_whole_outlives_a_power_failure(
    disk: Disk, home: Path, tmp_path: Path
) -> None:
    make_folder(home / "a" / "b")
    write_whole(home / "a" / "b" / "kept", b"first")
    write_whole(home / "a" / "b" / "kept", b"second")
    write_whole(home / "a" / "b" / "lost", b"x", durable=False)
    assert (home / "a" / "b" / "lost").read_bytes() == b"x"
    left = disk.after_power_failure(home, tmp_path / "left") / "a" / "b"
    assert {path.name: path.read_bytes() for path in left.iterdir()} == {"kept": b"second"}


def test_a_draft_that_is_given_up_leaves_nothing(home: Path) -> None:
    write_whole(home / "f", b"before")

    def broken_off() -> None:
        with Draft(home / "f", "w") as draft:
            draft.file.write("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_off()
    assert [(path.name, path.read_bytes()) for path in home.iterdir()] == [("f", b"before")]


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "n": pa.array([n for _, n in pairs], pa.int64())})


def weighed(*pairs: tuple[str, int], weight: int = 1) -> pa.Table:
    return rows(*pairs).append_column("_weight", pa.array([weight] * len(pairs), pa.int64()))


def append(table: ViewTable, batch: int) -> None:
    """As executors and driver do it, in one process."""
    written = []
    for data in (rows(("a", 1)), rows(("b", 2), ("c", batch))):
        for found in inside.parquet_writer(str(table.path), batch)(iter(data.to_batches())):
            written += [(row["path"], row["size"], row["stats"]) for row in found.to_pylist()]
    assert table.add(written, "q", batch) == 3


WAYS: dict[str, Callable[[ViewTable, int], object]] = {
    "append": append,
    "merge": lambda table, batch: table.merge(rows(("a", batch), ("b", 2)), ("k",), "q", batch),
    "replace": lambda table, batch: table.replace(
        weighed(("a", batch), ("b", 2)), ("k",), "_weight", "q", batch
    ),
    "add_up": lambda table, batch: table.add_up(weighed(("a", batch)), "_weight", "q", batch),
}


def held(path: Path) -> tuple[int, list[object]]:
    table = DeltaTable(str(path))
    return table.version(), sorted(table.to_pyarrow_table().to_pylist(), key=str)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_on_the_disk_before_the_checkpoint_can_know_of_it(
    way: str, disk: Disk, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 3)
    monkeypatch.setattr(compaction, "FAN", 2)
    monkeypatch.setitem(tidy.PROPERTIES, "delta.checkpointInterval", "2")
    schema = SCHEMA.append(pa.field("_weight", pa.int64())) if way == "add_up" else SCHEMA
    table = ViewTable(home / "views" / "v" / "table")
    table.create(schema)
    for batch in range(8):  # now and then files are merged
        WAYS[way](table, batch)
        table.settle()
        left = disk.after_power_failure(home, tmp_path / f"left-{batch}") / "views" / "v" / "table"
        assert held(left) == held(table.path)
        assert ViewTable(left).holds("q", batch)
        changed = DeltaTable(str(left)).load_cdf(starting_version=1).read_all()
        assert pa.table(changed).num_rows > 0


def test_a_power_failure_while_a_table_is_tidied_takes_no_row(
    disk: Disk, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 3)
    monkeypatch.setattr(compaction, "FAN", 2)
    monkeypatch.setitem(tidy.PROPERTIES, "delta.checkpointInterval", "2")
    table = ViewTable(home / "table")
    table.create(SCHEMA)
    known: list[object] = []
    lefts = []

    def look() -> None:
        if threading.current_thread().name.startswith("forebay-tidy-"):
            lefts.append(disk.after_power_failure(home, tmp_path / f"left-{len(lefts)}") / "table")
            assert held(lefts[-1])[1] == known

    disk.forced = look
    for batch in range(8):
        known = sorted([*known, *rows(("a", 1), ("b", 2), ("c", batch)).to_pylist()], key=str)
        append(table, batch)
        table.settle()
    table.widen(SCHEMA)  # raises what tidying ended with
    assert len(lefts) > 8
    assert held(table.path)[1] == known


def test_a_table_that_was_made_or_widened_is_on_the_disk(disk: Disk, home: Path, tmp_path: Path) -> None:
    table = ViewTable(home / "views" / "v" / "table")
    table.create(SCHEMA)
    table.widen(SCHEMA.append(pa.field("more", pa.int64())))
    left = disk.after_power_failure(home, tmp_path / "left") / "views" / "v" / "table"
    assert [field.name for field in DeltaTable(str(left)).schema().fields] == ["k", "n", "more"]


def test_what_a_killed_process_left_unforced_is_forced_before_its_batch_is_left_out(
    disk: Disk, home: Path, tmp_path: Path
) -> None:
    table = ViewTable(home / "table")
    table.create(SCHEMA)
    merge = table.open().merge(rows(("a", 1)), "t.k = s.k", source_alias="s", target_alias="t",
                               commit_properties=inside.commit_properties("q", 0))  # fmt: skip
    merge.when_not_matched_insert_all().execute()  # and here it was killed
    again = ViewTable(home / "table")
    assert again.holds("q", 0)
    again.persist()
    left = disk.after_power_failure(home, tmp_path / "left") / "table"
    assert held(left) == held(table.path)


def test_a_batch_whose_files_a_power_failure_took_is_not_left_out(home: Path) -> None:
    table = ViewTable(home / "table")
    table.create(SCHEMA)
    table.merge(rows(("a", 1)), ("k",), "q", 0)
    [file] = (home / "table").glob("*.parquet")
    file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"{file.name}.* is not whole"):
        ViewTable(home / "table").persist()
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{file.name}.* is not whole"):
        ViewTable(home / "table").persist()


def test_where_a_view_starts_is_on_the_disk_before_its_first_batch(
    disk: Disk, home: Path, tmp_path: Path
) -> None:
    with forebay.connect(home=home) as session:
        session.execute("CREATE SOURCE numbers (n BIGINT) FROM DATAGEN ()")
        statement = sql.parse_one("CREATE MATERIALIZED VIEW v AS SELECT n FROM numbers")
        assert isinstance(statement, sql.CreateView)
        starts = inside.starts_of(session, statement, ["numbers"])
    left = disk.after_power_failure(home, tmp_path / "left")
    assert json.loads((left / "views" / "v" / "start.json").read_text()) == starts


def test_letters_in_a_file_are_on_the_disk_when_they_are_flushed(
    disk: Disk, home: Path, tmp_path: Path
) -> None:
    letter = a_letter(offset=7)
    destination = FileDestination(home / "letters" / "s", "task")
    destination.write(letter)
    destination.flush()
    destination.close()
    left = disk.after_power_failure(home, tmp_path / "left") / "letters" / "s"
    assert [Letter.from_json(json.loads(path.read_text())) for path in left.iterdir()] == [letter]
