"""Members of a group that append to one table, in every order: each record that somebody read is in it, and none twice.

Writers are stale, read the same records as others (as after a kill or a freeze), and merge files in between. What a writer may
not add because another has, it goes on without, by the positions of `kafka/share.py`.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ObjectExistsError
from forebay.kafka.offsets import KafkaPosition, Range, without
from forebay.kafka.share import past
from forebay.source.accounts import Span
from forebay.source.parquet_file import ParquetFile
from forebay.views import tidy, versions
from forebay.views.common_table import CommonTable, OffsetsTakenError, is_common
from forebay.views.taken import TakenOffsets

SCHEMA = pa.schema([("p", pa.int64()), ("o", pa.int64())])
IDS = {"t": "id"}
MEMBERS = 3


def table_at(path: Path, member: str) -> CommonTable:
    return CommonTable(path, member, path)


def joined_by(path: Path, members: int = MEMBERS) -> list[CommonTable]:
    tables = [table_at(path, f"m{number}") for number in range(members)]
    for table in tables:
        table.create_or_join(SCHEMA, "g", "SELECT p, o FROM s")
    return tables


def written(table: CommonTable, spans: Sequence[Span], batch: int) -> list[tuple[str, int, str]]:
    """As tasks write it: one file a batch, with the rows of all its ranges."""
    rows = [(span.partition, at) for span in spans for at in range(span.start, span.end)]
    file = ParquetFile(table.path, f"part-{batch:05d}")
    columns = [pa.array([row[n] for row in rows], pa.int64()) for n in range(2)]
    file.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    found = file.close()
    assert found is not None
    return [(found.path, found.size, found.stats)]


def add(table: CommonTable, spans: Sequence[Span], query: str, batch: int) -> None:
    """A batch, and then what is left of it where others have a part."""
    try:
        table.add_once(written(table, spans, batch), query, batch, {}, spans, IDS)
    except OffsetsTakenError as taken:
        ranges = [Range(*span) for span in spans]
        position, beyond = past(KafkaPosition({}), ranges, [Range(*span) for span in taken.spans])
        left = [
            Span(piece.topic, piece.partition, max(piece.start, position.next.get(("t", piece.partition), 0)), piece.end)
            for item in ranges
            for piece in without(item, [(each.start, each.end) for each in beyond if each.partition == item.partition])
        ]  # fmt: skip
        add(table, [span for span in left if span.end > span.start], query, batch + 1)


def contents(path: Path) -> list[tuple[int, int]]:
    found = DeltaTable(str(path)).to_pyarrow_table()
    return sorted(zip(found["p"].to_pylist(), found["o"].to_pylist(), strict=True))


def offsets(spans: Sequence[Span]) -> set[tuple[int, int]]:
    return {(span.partition, at) for span in spans for at in range(span.start, span.end)}


ranges = st.builds(
    lambda partition, start, length: Span("t", partition, start, start + length),
    st.integers(0, 1), st.integers(0, 30), st.integers(1, 12),
)  # fmt: skip
batches = st.lists(ranges, min_size=1, max_size=2, unique_by=lambda span: span.partition)


@given(st.lists(st.tuples(st.integers(0, MEMBERS - 1), batches, st.booleans()), max_size=12))
def test_what_members_add_is_in_the_table_once_whoever_reads_it_again(
    steps: list[tuple[int, list[Span], bool]],
) -> None:
    path = Path(tempfile.mkdtemp(prefix="forebay-common-")) / "table"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidy, "EVERY", 3)
        patch.setattr("forebay.views.compaction.FAN", 2)
        tables = joined_by(path)
        expected: set[tuple[int, int]] = set()
        for batch, (member, spans, starts_again) in enumerate(steps):
            if starts_again:  # it has read nothing of the log then
                tables[member] = table_at(path, f"m{member}")
            add(tables[member], spans, f"q{member}", batch * 10)
            expected |= offsets(spans)
            assert contents(path) == sorted(expected)
        assert offsets(table_at(path, "new").taken().spans) == expected
    shutil.rmtree(path.parent)


@given(st.lists(batches, max_size=8), batches)
def test_taken_offsets_are_the_union_of_what_was_added(added: list[list[Span]], asked: list[Span]) -> None:
    taken = TakenOffsets()
    for spans in added:
        taken = taken.adding(spans, IDS)
    known = offsets([span for spans in added for span in spans])
    assert offsets(taken.spans) == known
    assert offsets(taken.of(asked, IDS)) == known & offsets(asked)
    assert TakenOffsets.from_json(taken.to_json()) == taken
    assert taken.of(asked, {"t": "another"}) == [], "a topic that was made anew has other records"
    assert offsets(taken.adding(asked, {"t": "another"}).spans) == offsets(asked)


def test_members_append_at_the_same_time_while_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 8)
    monkeypatch.setattr(versions, "LIVE", 10)
    monkeypatch.setattr(versions, "SEGMENT", 10)
    monkeypatch.setitem(tidy.PROPERTIES, "delta.checkpointInterval", "20")
    tables, each, failed = joined_by(tmp_path / "table"), 60, list[Exception]()

    def run(number: int) -> None:
        try:
            for batch in range(each):  # every second range is another member's, too
                spans = [Span("t", number, batch, batch + 1), Span("t", 9, batch, batch + 1)]
                add(tables[number], spans, f"q{number}", batch * 10)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    found = contents(tmp_path / "table")
    assert found == sorted((p, o) for p in (*range(MEMBERS), 9) for o in range(each))
    assert len(tables[0].files()) < 100, "merging keeps up with the members"
    assert len(list((tmp_path / "table" / "_delta_log").glob("*.json"))) < each * MEMBERS, (
        "the log is shortened"
    )


def test_a_member_that_was_silent_while_the_log_was_shortened_writes_no_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "EVERY", 4)
    monkeypatch.setattr(versions, "LIVE", 5)
    monkeypatch.setattr(versions, "SEGMENT", 5)
    monkeypatch.setitem(tidy.PROPERTIES, "delta.checkpointInterval", "10")
    silent, busy = joined_by(tmp_path / "table", 2)
    add(silent, [Span("t", 0, 0, 1)], "q0", 0)
    for batch in range(1, 60):
        add(busy, [Span("t", 0, batch, batch + 1)], "q1", batch)
    assert not (tmp_path / "table" / "_delta_log" / f"{2:020d}.json").exists()
    add(silent, [Span("t", 0, 0, 3)], "q0", 1)  # all of it is there already
    add(silent, [Span("t", 0, 58, 62)], "q0", 2)
    assert contents(tmp_path / "table") == [(0, number) for number in range(62)]
    assert silent.has_commits()
    assert not table_at(tmp_path / "table", "new").has_commits()


def test_records_without_a_row_for_the_table_leave_no_gaps_behind(tmp_path: Path) -> None:
    [table] = joined_by(tmp_path / "table", 1)
    for batch in range(20):
        spans = [Span("t", 0, batch, batch + 1)]
        if batch % 5:
            table.pass_over(spans)
        else:
            add(table, spans, "q", batch)
    assert table.taken().spans == (Span("t", 0, 0, 16),)


@pytest.mark.parametrize(
    ("schema", "group", "query", "what"),
    [
        (SCHEMA, "another", "SELECT p, o FROM s", "another group than this view: 'g' there, 'another' here"),
        (SCHEMA, "g", "SELECT p, o FROM s WHERE o > 1", "another query than"),
        (SCHEMA.append(pa.field("k", pa.string())), "g", "SELECT p, o FROM s", "another set of columns"),
    ],
)
def test_a_member_with_another_group_query_or_columns_is_refused(
    tmp_path: Path, schema: pa.Schema, group: str, query: str, what: str
) -> None:
    assert not is_common(tmp_path / "table")
    joined_by(tmp_path / "table", 1)
    assert is_common(tmp_path / "table")
    with pytest.raises(ObjectExistsError, match=what) as refused:
        table_at(tmp_path / "table", "other").create_or_join(schema, group, query)
    assert "same statements" in refused.value.remedy
