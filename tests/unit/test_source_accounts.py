"""What tasks write down: once a split, however often the task runs, and complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from forebay.connectors.contract import RejectedRecord, SourceBatch, Stretch
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.source.accounts import Account, read, remove, write

FIRST = KafkaSplit((Range("t", 0, 0, 10), Range("t", 1, 5, 9)))
SECOND = KafkaSplit((Range("t", 2, 0, 10),))


def account(good: int, *kinds: str) -> Account:
    found = Account()
    bad = [RejectedRecord("t", 0, offset, kind, "why") for offset, kind in enumerate(kinds)]
    found.count(SourceBatch(pa.record_batch({"n": list(range(good))}), bad))
    return found


def test_splits_add_up(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3, "Other"))
    write(tmp_path, SECOND, account(4, "Other", "TypeConversion"))
    total = read(tmp_path, [FIRST, SECOND])
    assert total is not None
    assert total.records == 10
    assert total.rejected == {"Other": 2, "TypeConversion": 1}
    assert total.example == "t-0 at offset 1: TypeConversion: why"


def test_a_task_that_is_repeated_counts_once(tmp_path: Path) -> None:
    for _ in range(3):
        write(tmp_path, FIRST, account(3, "Other"))
    total = read(tmp_path, [FIRST])
    assert total is not None
    assert (total.records, dict(total.rejected)) == (4, {"Other": 1})
    assert len(list(tmp_path.iterdir())) == 1


def test_a_split_that_was_not_written_down_is_not_taken_for_empty(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3))
    assert read(tmp_path, [FIRST, SECOND]) is None
    assert read(tmp_path / "never", [FIRST]) is None


def test_nothing_is_left_of_what_is_counted(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3))
    remove(tmp_path, [FIRST, SECOND])
    assert list(tmp_path.iterdir()) == []


def test_what_became_of_bad_records_is_written_down_with_them(tmp_path: Path) -> None:
    one, other = account(1, "Other"), account(2)
    one.dlq, one.limited = 1, [Stretch("t", 0, 7, 9, 2)]
    other.count(SourceBatch(pa.record_batch({"n": [1]}), counted={"Other": 3}))
    other.limited = [Stretch("t", 0, 20, 23, 3)]
    write(tmp_path, FIRST, one)
    write(tmp_path, SECOND, other)
    total = read(tmp_path, [FIRST, SECOND])
    assert total is not None
    assert (total.records, dict(total.rejected)) == (8, {"Other": 4})
    assert (total.dlq, total.rate_limited, total.limited) == (1, 5, [Stretch("t", 0, 7, 23, 5)])
