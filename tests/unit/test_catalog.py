"""The catalog: counts each batch once, forgets what is old, and is read while it is written."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import inside
import pytest
from hypothesis import given
from hypothesis import strategies as some

from forebay.catalog import BatchRecord, Catalog, Definition, QueryState
from forebay.catalog.catalog import BATCHES_KEPT, HISTORY_KEPT
from forebay.connectors.contract import Stretch
from forebay.home_tables import LOST_KEPT

BATCH = BatchRecord(
    view="v",
    source="s",
    batch=0,
    records=10,
    rejected={"Malformed": 2},
    example="t-0 offset 3: not JSON",
    lost=(),
    late=1,
    offsets={"topics": {}},
    duration_ms=40,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "catalog.db"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    catalog = Catalog(path)
    yield catalog
    catalog.close()


def test_a_definition_is_kept_as_it_was_put(catalog: Catalog) -> None:
    source = Definition("s", "source", "CREATE SOURCE s …", 17, {"columns": ["a"]})
    view = Definition("v", "view", "CREATE MATERIALIZED VIEW v …", 18)
    catalog.put(view)
    catalog.put(source)
    assert catalog.get("s") == source
    assert catalog.get("nothing") is None
    assert catalog.all("source") == [source]
    assert catalog.all("view") == [view]
    assert catalog.all("sink") == []


def test_views_that_an_earlier_version_kept_mean_what_they_meant(catalog: Catalog, path: Path) -> None:
    text = 'CREATE MATERIALIZED VIEW v AS\nSELECT a, "x" AS b FROM "Orders" WHERE c = "it\'s"'
    other = Definition(
        "w", "view", "CREATE MATERIALIZED VIEW w AS\nSELECT '\"' AS a FROM t /* \" */", 2, {"emit": "append"}
    )
    catalog.put(Definition("v", "view", text, 1, {"emit": "append"}))
    catalog.put(other)
    for _ in range(2):
        again = Catalog(path)
        found = again.get("v")
        assert found == Definition(
            "v",
            "view",
            "CREATE MATERIALIZED VIEW v AS\nSELECT a, 'x' AS b FROM `Orders` WHERE c = 'it\\'s'",
            1,
            {"emit": "append"},
        )
        assert again.get("w") == other
        again.close()


def test_putting_again_replaces(catalog: Catalog) -> None:
    catalog.put(Definition("s", "source", "old", 1))
    catalog.put(Definition("s", "source", "new", 2))
    assert [found.sql for found in catalog.all("source")] == ["new"]


def test_what_is_dropped_is_forgotten_with_all_that_was_known_of_it(catalog: Catalog) -> None:
    catalog.put(Definition("v", "view", "…", 1))
    catalog.set_state("v", QueryState.RUNNING, "", 1)
    catalog.record_batch(BATCH)
    catalog.record_batch(replace(BATCH, view="other"))
    catalog.drop("v")
    assert catalog.get("v") is None
    assert catalog.state("v") is None
    assert catalog.history("v") == []
    assert catalog.batches("v") == []
    assert [found.view for found in catalog.totals()] == ["other"]


def test_a_batch_is_counted_once_however_often_it_is_recorded(catalog: Catalog) -> None:
    catalog.record_batch(BATCH)
    once = catalog.totals(), catalog.batches("v")
    catalog.record_batch(BATCH)
    catalog.record_batch(replace(BATCH, records=99, lost=(("t", 0, 0, 5),)))
    assert (catalog.totals(), catalog.batches("v")) == once


def test_an_older_batch_than_the_last_changes_nothing(catalog: Catalog) -> None:
    catalog.record_batch(replace(BATCH, batch=5))
    catalog.record_batch(replace(BATCH, batch=4))
    assert catalog.totals()[0].records == 10


def test_totals_add_up_over_batches(catalog: Catalog) -> None:
    catalog.record_batch(BATCH)
    catalog.record_batch(
        replace(
            BATCH,
            batch=1,
            records=5,
            rejected={"Malformed": 1, "Overflow": 3},
            lost=(("t", 0, 7, 9),),
            case_mismatches=2,
        )
    )
    catalog.record_batch(
        replace(BATCH, batch=2, records=1, rejected={}, example=None, offsets={"x": 1}, case_mismatches=1)
    )
    (total,) = catalog.totals(view="v", source="s")
    assert total.records == 16
    assert total.rejected == {"Malformed": 3, "Overflow": 3}
    assert total.lost == ("t-0 [7, 9)",)
    assert (total.lost_ranges, total.lost_records) == (1, 2)
    assert total.late == 3
    assert total.batch == 2
    assert total.offsets == {"x": 1}
    assert total.example == BATCH.example
    assert total.case_mismatches == 3


def test_however_much_is_lost_a_batch_writes_no_more_and_the_newest_ranges_are_named(
    catalog: Catalog,
) -> None:
    def written() -> int:
        """What a batch that loses nothing changes in the file."""
        before = inside.connection_of(catalog).total_changes
        row = inside.connection_of(catalog).execute("SELECT * FROM totals").fetchone()
        catalog.record_batch(replace(BATCH, batch=row["batch"] + 1))
        assert inside.connection_of(catalog).total_changes - before < 10
        return len(str(tuple(inside.connection_of(catalog).execute("SELECT * FROM totals").fetchone())))

    many = 3 * LOST_KEPT
    for number in range(many):
        span = ("t", number % 2, 10 * number, 10 * number + 3)
        catalog.record_batch(replace(BATCH, batch=2 * number, lost=(span,)))
        if number == 0:
            least = written()
    assert written() < least + 20
    [total] = catalog.totals()
    assert (total.lost_ranges, total.lost_records) == (many, 3 * many)
    assert total.lost == tuple(
        f"t-{number % 2} [{10 * number}, {10 * number + 3})" for number in range(many - LOST_KEPT, many)
    )
    catalog.drop("v")
    catalog.record_batch(BATCH)
    assert (catalog.totals()[0].lost, catalog.totals()[0].lost_ranges) == ((), 0)


@given(some.lists(some.tuples(some.integers(0, 1), some.integers(0, 3), some.integers(1, 9)), max_size=30))
def test_lost_ranges_that_touch_are_one_and_no_record_of_them_is_forgotten(
    losses: list[tuple[int, int, int]],
) -> None:
    """Partition, how many were read since the last loss, how many are lost now."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog(Path(folder) / "catalog.db")
        try:
            at, gone = {0: 0, 1: 0}, set()
            for batch, (partition, read, lost) in enumerate(losses):
                start = at[partition] + read
                at[partition] = start + lost
                gone |= {(partition, offset) for offset in range(start, start + lost)}
                catalog.record_batch(
                    replace(BATCH, batch=batch, lost=(("t", partition, start, start + lost),))
                )
            for total in catalog.totals():
                named = [re.fullmatch(r"t-(\d) \[(\d+), (\d+)\)", each) for each in total.lost]
                spans = [tuple(map(int, each.groups())) for each in named if each]
                assert {(p, offset) for p, low, high in spans for offset in range(low, high)} == gone
                assert (total.lost_ranges, total.lost_records) == (len(total.lost), len(gone))
                assert not {(p, high) for p, _, high in spans} & {(p, low) for p, low, _ in spans}
        finally:
            catalog.close()


def test_totals_are_kept_apart_by_view_and_source(catalog: Catalog) -> None:
    for view in ("v", "w"):
        for source in ("s", "t"):
            catalog.record_batch(replace(BATCH, view=view, source=source))
    assert [(t.view, t.source) for t in catalog.totals()] == [
        ("v", "s"), ("v", "t"), ("w", "s"), ("w", "t"),
    ]  # fmt: skip
    assert [t.view for t in catalog.totals(source="s")] == ["v", "w"]
    assert [t.source for t in catalog.totals(view="w")] == ["s", "t"]
    (row,) = catalog.batches("v")
    assert row[2:4] == (20, 4)  # one batch took from two sources


def test_batches_are_listed_newest_first_and_bounded(catalog: Catalog, path: Path) -> None:
    with sqlite3.connect(path) as db:  # a thousand transactions would only be slow
        db.executemany(
            "INSERT INTO batches VALUES ('v', ?, 0, 1, 0, 0, 0)", [(n,) for n in range(BATCHES_KEPT)]
        )
    for number in range(BATCHES_KEPT, BATCHES_KEPT + 5):
        catalog.record_batch(replace(BATCH, batch=number))
    found = catalog.batches("v", limit=10_000)
    assert len(found) == BATCHES_KEPT
    assert [row[0] for row in found[:2]] == [BATCHES_KEPT + 4, BATCHES_KEPT + 3]
    assert len(catalog.batches("v")) == 50


def test_the_state_is_the_last_one_and_the_history_has_them_in_order(catalog: Catalog) -> None:
    assert catalog.state("v") is None
    catalog.set_state("v", QueryState.STARTING, "", 1)
    catalog.set_state("v", QueryState.FAILED, "FB3004: …", 2)
    assert catalog.state("v") == (QueryState.FAILED, "FB3004: …", 2)
    assert [(state, message) for _, state, message in catalog.history("v")] == [
        ("starting", ""),
        ("failed", "FB3004: …"),
    ]


def test_the_history_is_bounded(catalog: Catalog, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.executemany(
            "INSERT INTO events (name, kind, state, message, at_ms) VALUES ('v', 'state', 'running', ?, 0)",
            [(str(number),) for number in range(HISTORY_KEPT)],
        )
    for number in range(3):
        catalog.set_state("v", QueryState.RETRYING, f"again {number}", 1)
    history = catalog.history("v")
    assert len(history) == HISTORY_KEPT
    assert history[-1][2] == "again 2"
    assert history[0][2] == "3"


def test_nobody_else_may_read_the_files(catalog: Catalog, path: Path) -> None:
    catalog.put(Definition("s", "source", "…", 1))
    files = list(path.parent.iterdir())
    assert len(files) >= 2  # the write-ahead log is one
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_one_process_wrote_another_finds(catalog: Catalog, path: Path) -> None:
    catalog.record_batch(BATCH)
    catalog.set_state("v", QueryState.RUNNING, "", 1)
    code = (
        "import sys; from pathlib import Path; from forebay.catalog import Catalog\n"
        "c = Catalog(Path(sys.argv[1])); print(c.totals()[0].records, c.state('v')[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10", "running"]


def test_a_reader_does_not_wait_for_a_writer_and_sees_whole_transactions(
    catalog: Catalog, path: Path
) -> None:
    catalog.record_batch(BATCH)
    reader = Catalog(path)
    try:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE totals SET records = 99")
            assert reader.totals()[0].records == 10
        assert reader.totals()[0].records == 99
    finally:
        reader.close()


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from forebay.catalog import BatchRecord, Catalog, QueryState
catalog = Catalog(Path(sys.argv[1]))
print("ready", flush=True)
for n in range(200):
    catalog.record_batch(BatchRecord(sys.argv[2], "s", n, 7, {}, None, (), 0, {"n": n}, 1))
    catalog.set_state(sys.argv[2], QueryState.RUNNING, "", n)
"""


def test_a_catalog_is_read_while_two_processes_write_it(path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), view], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for view in ("v", "w")
    ]  # fmt: skip
    looks = 0
    reader: Catalog | None = None
    try:
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
        reader = Catalog(path)
        while any(writer.poll() is None for writer in writers):
            for total in reader.totals():
                assert total.records == 7 * (total.batch + 1)
                assert total.offsets == {"n": total.batch}
            looks += 1
        assert [writer.returncode for writer in writers] == [0, 0], [w.communicate() for w in writers]
        assert [total.records for total in reader.totals()] == [1400, 1400]
        assert looks > 3
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
        if reader:
            reader.close()


def test_many_open_a_new_catalog_at_once(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from forebay.catalog import Catalog, Definition\n"
        "sys.stdin.readline()\n"
        "c = Catalog(Path(sys.argv[1])); c.put(Definition(sys.argv[2], 'source', 'x', 1)); c.close()"
    )
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), f"s{number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for opener in openers:
        assert opener.stdin
        opener.stdin.write("go\n")
        opener.stdin.flush()
    complaints = [opener.communicate()[1] for opener in openers]
    assert complaints == [""] * 4
    catalog = Catalog(path)
    assert [found.name for found in catalog.all("source")] == ["s0", "s1", "s2", "s3"]
    catalog.close()


def test_one_connection_serves_all_threads_of_a_process(catalog: Catalog) -> None:
    failures: list[BaseException] = []

    def work(view: str) -> None:
        try:
            for number in range(30):
                catalog.record_batch(replace(BATCH, view=view, batch=number))
                catalog.totals(view=view)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"v{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [total.records for total in catalog.totals()] == [300] * 4


def test_a_transaction_that_fails_leaves_nothing(catalog: Catalog) -> None:
    catalog.record_batch(BATCH)
    with pytest.raises(TypeError):
        catalog.record_batch(replace(BATCH, batch=1, offsets={"x": object()}))
    assert catalog.totals()[0].batch == 0
    catalog.record_batch(replace(BATCH, batch=1))
    assert catalog.totals()[0].batch == 1


def test_the_file_is_plain_sqlite(catalog: Catalog, path: Path) -> None:
    catalog.put(Definition("s", "source", "…", 1))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name, kind FROM objects").fetchall() == [("s", "source")]
    connection.close()


def test_errors_of_a_source_are_those_of_the_view_that_met_most(catalog: Catalog) -> None:
    assert catalog.source_errors() == []
    first = replace(BATCH, rejected={"Malformed": 5, "Other": 2}, dlq=3, rate_limited=1)
    catalog.record_batch(first)
    catalog.record_batch(first)
    catalog.record_batch(replace(first, batch=1, rejected={"Other": 1}, dlq=0, rate_limited=0))
    catalog.record_batch(replace(BATCH, view="w"))
    [found] = catalog.source_errors()
    assert (found.source_name, found.errors_total, found.by_kind) == ("s", 8, {"Malformed": 5, "Other": 3})
    assert (found.dlq_total, found.rate_limited, found.skipped) == (3, 1, 4)
    assert found.errors_per_second == 0.8
    assert found.last_error_ms > 0
    [totals] = catalog.totals(view="v")
    assert (totals.dlq, totals.rate_limited) == (3, 1)


def test_the_ledger_takes_a_batch_once_and_joins_what_lies_near(catalog: Catalog) -> None:
    first = replace(BATCH, limited=(Stretch("t", 0, 10, 20, 4), Stretch("t", 1, 10, 20, 4)))
    catalog.record_batch(first)
    catalog.record_batch(first)
    catalog.record_batch(replace(BATCH, batch=1, limited=(Stretch("t", 0, 500, 600, 5),)))
    catalog.record_batch(replace(BATCH, batch=2, limited=(Stretch("t", 0, 9000, 9001, 1),)))
    catalog.record_batch(replace(BATCH, view="w", limited=(Stretch("t", 0, 12, 400, 6),)))
    assert catalog.ledger("s") == [
        Stretch("t", 0, 10, 600, 9), Stretch("t", 0, 9000, 9001, 1), Stretch("t", 1, 10, 20, 4),
    ]  # fmt: skip
    assert catalog.ledger("other") == []
    catalog.settle_ledger("s", Stretch("t", 0, 10, 600, 9))
    assert [stretch.start for stretch in catalog.ledger("s")] == [9000, 10]
    catalog.drop("s")
    assert catalog.ledger("s") == []


OLD_LOST = '["a-b-0 [0, 5)", "t-12 [7, 9)"]'


def test_a_catalog_without_counts_of_letters_gets_them(path: Path) -> None:
    path.parent.mkdir(parents=True)
    old = sqlite3.connect(path)
    old.execute(
        "CREATE TABLE totals (view TEXT NOT NULL, source TEXT NOT NULL, batch INTEGER NOT NULL, records INTEGER, "
        "rejected TEXT, example TEXT, lost TEXT, late INTEGER, offsets TEXT, at_ms INTEGER, "
        "skipped INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, source))"
    )
    old.execute(
        "INSERT INTO totals VALUES ('v', 's', 3, 9, '{\"Other\": 2}', NULL, ?, 0, '{}', 1, 0)", (OLD_LOST,)
    )
    old.commit()
    old.close()
    catalog = Catalog(path)
    try:
        [errors] = catalog.source_errors()
        assert (errors.errors_total, errors.dlq_total, errors.skipped) == (2, 0, 2)
        catalog.record_batch(replace(BATCH, batch=4, dlq=2))
        assert catalog.source_errors()[0].dlq_total == 2
        [total] = catalog.totals()
        assert total.lost == ("a-b-0 [0, 5)", "t-12 [7, 9)")
        assert (total.lost_ranges, total.lost_records) == (2, 7)
        assert total.case_mismatches == 0
    finally:
        catalog.close()


def test_what_only_the_catalog_knows_waits_for_the_disk(catalog: Catalog) -> None:
    """SQLite forces a commit to the disk with synchronous=FULL; what can be counted again need not wait for that."""
    said: list[str] = []
    inside.connection_of(catalog).set_trace_callback(said.append)

    def level() -> str:
        """As it was when the last transaction was committed."""
        committed = len(said) - said[::-1].index("COMMIT")
        return [each for each in said[:committed] if each.startswith("PRAGMA synchronous=")][-1][-4:]

    catalog.record_batch(BATCH)
    assert level() == "RMAL"
    catalog.put(Definition("s", "source", "…", 1))
    assert level() == "FULL"
    catalog.record_batch(replace(BATCH, batch=1))
    assert level() == "RMAL"
    catalog.record_batch(replace(BATCH, batch=2, rate_limited=1, limited=(Stretch("t", 0, 1, 2, 1),)))
    assert level() == "FULL"
    catalog.drop("s")
    assert level() == "FULL"
