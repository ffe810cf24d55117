"""What tasks say of what they read, written down: once a range, however often and in whichever splits it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.connectors.contract import RejectedRecord, SourceBatch, Split, Stretch
from forebay.kafka.offsets import KafkaSplit, Range, plan_splits
from forebay.source import accounts
from forebay.source.accounts import Account, find

FIRST = KafkaSplit((Range("t", 0, 0, 10), Range("t", 1, 5, 9)))
SECOND = KafkaSplit((Range("t", 2, 0, 10),))


def write(folder: Path, split: Split, found: Account) -> None:
    """As the driver does with what a task sent."""
    accounts.write(folder, accounts.name_of(split), accounts.to_form(split, found))


def account(good: int, *kinds: str) -> Account:
    found = Account()
    bad = [RejectedRecord("t", 0, offset, kind, "why") for offset, kind in enumerate(kinds)]
    found.count(SourceBatch(pa.record_batch({"n": list(range(good))}), bad))
    return found


def test_splits_add_up(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3, "Other"))
    write(tmp_path, SECOND, account(4, "Other", "TypeConversion"))
    found = find([tmp_path], [FIRST, SECOND], "v")
    assert found.whole
    assert found.account.records == 10
    assert found.account.rejected == {"Other": 2, "TypeConversion": 1}
    assert find([tmp_path], [SECOND], "v").account.example == "t-0 at offset 1: TypeConversion: why"


def test_case_mismatches_add_up_and_one_that_an_older_version_wrote_has_none(tmp_path: Path) -> None:
    for split, count in ((FIRST, 2), (SECOND, 3)):
        found = Account()
        found.count(SourceBatch(pa.record_batch({"n": [1, 2, 3]}), case_mismatches=count))
        write(tmp_path, split, found)
    assert find([tmp_path], [FIRST, SECOND], "v").account.case_mismatches == 5
    for path in tmp_path.iterdir():
        form = json.loads(path.read_bytes())
        del form["case_mismatches"]
        path.write_text(json.dumps(form))
    older = find([tmp_path], [FIRST, SECOND], "v")
    assert (older.whole, older.account.case_mismatches) == (True, 0)


def test_a_task_that_is_repeated_counts_once(tmp_path: Path) -> None:
    for _ in range(3):
        write(tmp_path, FIRST, account(3, "Other"))
    total = find([tmp_path], [FIRST], "v").account
    assert (total.records, dict(total.rejected)) == (4, {"Other": 1})
    assert len(list(tmp_path.iterdir())) == 1


def test_a_split_that_was_not_written_down_is_not_taken_for_empty(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3))
    assert not find([tmp_path], [FIRST, SECOND], "v").whole
    assert not find([tmp_path / "never"], [FIRST], "v").whole
    assert not find([tmp_path], [Split()], "v").whole  # of a connector that has no ranges


def test_one_that_a_power_failure_left_empty_counts_as_not_there(tmp_path: Path) -> None:
    write(tmp_path, FIRST, account(3))
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    assert not find([tmp_path], [FIRST], "v").whole


def test_nothing_is_left_of_what_is_counted_and_the_batch_in_flight_stays(tmp_path: Path) -> None:
    following = KafkaSplit((Range("t", 0, 10, 20),))
    write(tmp_path, FIRST, account(3))
    write(tmp_path, following, account(5))
    found = find([tmp_path], [FIRST], "v")
    assert found.account.records == 3
    found.remove()
    assert find([tmp_path], [following], "v").account.records == 5
    find([tmp_path], [following], "v").remove()
    assert list(tmp_path.iterdir()) == []


def test_what_became_of_bad_records_is_written_down_with_them(tmp_path: Path) -> None:
    one, other = account(1, "Other"), account(2)
    one.dlq, one.limited = 1, [Stretch("t", 0, 7, 9, 2)]
    other.count(SourceBatch(pa.record_batch({"n": [1]}), counted={"Other": 3}))
    other.limited = [Stretch("t", 0, 20, 23, 3)]
    write(tmp_path, FIRST, one)
    write(tmp_path, SECOND, other)
    total = find([tmp_path], [FIRST, SECOND], "v").account
    assert (total.records, dict(total.rejected)) == (8, {"Other": 4})
    assert (total.dlq, total.rate_limited, total.limited) == (1, 5, [Stretch("t", 0, 7, 23, 5)])


def limited(split: KafkaSplit) -> Account:
    """Every record of the split is bad, and the rate limit kept it out."""
    found = Account(records=sum(len(each) for each in split.ranges))
    found.rejected["Other"] = found.records
    found.limited = [Stretch(*span, span[3] - span[2]) for span in split.spans() if span[3] > span[2]]
    return found


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=6),
    written=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    asked=st.integers(1, 16),
)
def test_the_ledger_survives_another_parallelism(
    tmp_path_factory: object, sizes: list[int], written: list[int], asked: int
) -> None:
    """Tasks are cut for as many cores as there are; whoever counts may know of more or fewer, or of a repeated batch."""
    folder = tmp_path_factory.mktemp("accounts")  # type: ignore[attr-defined]
    ranges = [Range("t", number, 0, size) for number, size in enumerate(sizes)]
    for parallelism in written:
        for split in plan_splits(ranges, parallelism):
            write(folder, split, limited(split))
    found = find([folder], plan_splits(ranges, asked), "v")
    assert found.whole
    assert found.account.records == found.account.rate_limited == sum(sizes)
    assert {(each.partition, each.start, each.end) for each in found.account.limited} == {
        (number, 0, size) for number, size in enumerate(sizes)
    }
    found.remove()
    assert list(folder.iterdir()) == []
