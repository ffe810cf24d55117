"""What a task does with bad records under each policy, and what it writes down."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from made import a_letter

from forebay.connectors.contract import RawRecord, RejectedRecord, SourceBatch, Stretch
from forebay.deadletter.breaker import HealthFolder
from forebay.deadletter.destinations import FileDestination, MemoryDestination
from forebay.deadletter.letter import Letter
from forebay.deadletter.limiter import Bucket, TaskLimiter
from forebay.deadletter.policy import ErrorPolicy, SourceFolder
from forebay.deadletter.report import Report
from forebay.deadletter.router import EXAMPLES, Router
from forebay.errors import BadRecordError, OptionError, TooManyErrorsError
from forebay.kafka.offsets import KafkaSplit, Range

SPLIT = KafkaSplit((Range("t", 0, 0, 100),), (("t", "its id"),))


def bad(offset: int, value: bytes | None = b"{", before: int = 0) -> RejectedRecord:
    raw = RawRecord(5, b"k", value, [("h", None)])
    return RejectedRecord("t", 0, offset, "MalformedPayload", "why", "id", before=before, record=raw)


def batch(*rejected: RejectedRecord, **more: object) -> SourceBatch:
    return SourceBatch(pa.record_batch({"n": [1]}), rejected, **more)  # type: ignore[arg-type]


def router(
    policy: ErrorPolicy, folder: Path, memory: MemoryDestination, limiter: TaskLimiter | None = None
) -> Router:
    return Router("s", policy, SPLIT, HealthFolder(folder / "health"), lambda: memory, limiter)


def test_skip_and_a_clean_batch_write_nothing_and_want_no_bytes(tmp_path: Path) -> None:
    memory = MemoryDestination()
    made = router(ErrorPolicy(), tmp_path, memory)
    made.see(batch(bad(1)))
    made.see(batch())
    made.finish()
    assert (memory.letters, made.letters, made.limited) == ([], 0, [])
    assert not made.wanted.whole
    assert made.wanted.most is not None
    assert list(tmp_path.iterdir()) == []


def test_dead_letter_keeps_the_record_and_flushes_before_the_end(tmp_path: Path) -> None:
    memory = MemoryDestination()
    made = router(ErrorPolicy("dead_letter", "dlq"), tmp_path, memory)
    made.see(batch(bad(1), bad(7, None)))
    assert memory.flushed == 0
    made.finish()
    assert memory.flushed == made.letters == 2
    first, second = memory.letters
    assert (first.identity, first.key, first.value, first.headers) == (
        ("t", 0, 1, "its id"),
        b"k",
        b"{",
        (("h", None),),
    )
    assert (first.kind, first.message, first.field, first.stage) == ("MalformedPayload", "why", "id", "VALUE")
    assert (second.value, second.whole, second.size) == (None, True, 0)
    assert made.wanted.whole
    assert made.wanted.most is None


def test_a_value_is_cut_or_left_out_as_the_policy_says(tmp_path: Path) -> None:
    for policy, value in (
        (ErrorPolicy("dead_letter", "dlq", max_raw_bytes=3), b"abc"),
        (ErrorPolicy("dead_letter", "dlq", include_raw=False), None),
    ):
        memory = MemoryDestination()
        made = router(policy, tmp_path, memory)
        made.see(batch(bad(1, b"abcdef")))
        [letter] = memory.letters
        assert (letter.value, letter.size, letter.whole) == (value, 6, False)
        assert letter.sha256 is not None


def test_a_record_that_could_not_be_held_has_a_letter_that_says_so(tmp_path: Path) -> None:
    memory = MemoryDestination()
    made = router(ErrorPolicy("dead_letter", "dlq"), tmp_path, memory)
    made.see(batch(RejectedRecord("t", 0, 1, "PayloadTooLarge", "300 MB")))
    assert not memory.letters[0].whole
    assert memory.letters[0].size == -1


def test_what_the_limit_keeps_out_is_in_the_ledger_and_a_range_that_is_gone_is_no_letter(
    tmp_path: Path,
) -> None:
    memory = MemoryDestination()
    limiter = TaskLimiter(Bucket.full(2, 0.0), lambda: 0.0)
    made = router(ErrorPolicy("dead_letter", "dlq", max_per_second=2), tmp_path, memory, limiter)
    gone = RejectedRecord("t", 0, 0, "Other", "3 records are gone", gone=True)
    assert made.wanted.most is not None
    assert made.wanted.most() == 2
    made.see(batch(gone, bad(1), bad(2), bad(5), counted={"Other": 4}, stretches=[Stretch("t", 0, 6, 20, 4)]))
    made.see(batch(bad(50)))
    made.finish()
    assert [letter.offset for letter in memory.letters] == [1, 2]
    assert made.wanted.most() == 0
    assert made.limited == [Stretch("t", 0, 5, 51, 6, "its id")]


def test_a_task_tells_of_a_few_bad_records_and_counts_the_others(tmp_path: Path) -> None:
    for policy in (ErrorPolicy(), ErrorPolicy("fail")):
        made = router(policy, tmp_path, MemoryDestination())
        assert made.wanted.most is not None
        assert made.wanted.most() == EXAMPLES
    made = router(ErrorPolicy(), tmp_path, MemoryDestination())
    most = made.wanted.most
    assert most is not None
    made.see(batch(bad(1)))
    assert most() == EXAMPLES - 1
    made.see(batch(bad(2), bad(3), counted={"Other": 4}))
    assert most() == 0
    assert router(ErrorPolicy(max_error_ratio=0.5), tmp_path, MemoryDestination()).wanted.most is None


def test_fail_names_the_record_the_reason_and_what_to_do(tmp_path: Path) -> None:
    made = router(ErrorPolicy("fail"), tmp_path, MemoryDestination())
    made.see(batch(RejectedRecord("t", 0, 0, "Other", "3 records are gone", gone=True)))
    with pytest.raises(BadRecordError) as caught:
        made.see(batch(bad(41), bad(42)))
    text = str(caught.value)
    assert text.startswith("FB2001: ")
    assert "t-0 at offset 41: MalformedPayload: why" in text
    assert "ALTER SOURCE s ON ERROR" in text
    assert not caught.value.retryable


def test_a_breaker_shows_three_examples_and_what_a_task_left_the_next_one_takes_up(tmp_path: Path) -> None:
    policy = ErrorPolicy(max_consecutive_errors=6)
    first = router(policy, tmp_path, MemoryDestination())
    first.see(batch(bad(0), bad(4, before=3), bad(5, before=3), good={("t", 0): 3}))
    first.finish()
    following = KafkaSplit((Range("t", 0, 100, 200),))
    second = Router("s", policy, following, HealthFolder(tmp_path / "health"), MemoryDestination, None)
    second.see(batch(bad(100), bad(101), bad(102)))
    with pytest.raises(TooManyErrorsError) as caught:
        second.see(batch(bad(103)))
    assert "6 records in a row" in caught.value.message
    assert [f"offset {n}" in caught.value.message for n in (100, 101, 102, 103)] == [False, True, True, True]
    # Repeated, it starts from the same.
    again = Router("s", policy, following, HealthFolder(tmp_path / "health"), MemoryDestination, None)
    again.see(batch(bad(100), good={("t", 0): 1}))


def test_files_are_whole_and_written_again_by_a_task_that_is_repeated(tmp_path: Path) -> None:
    letters = [a_letter(b"\xff", offset=n, message="why", failed_at_ms=9) for n in range(3)]
    broken = FileDestination(tmp_path / "dlq", "task")
    broken.write(letters[0])
    assert list((tmp_path / "dlq").glob("*.jsonl")) == []
    broken.close()
    assert list((tmp_path / "dlq").iterdir()) == []
    for _ in range(2):
        made = FileDestination(tmp_path / "dlq", "task")
        for letter in letters:
            made.write(letter)
        made.flush()
        made.close()
    [path] = (tmp_path / "dlq").glob("*.jsonl")
    assert [Letter.from_json(json.loads(line)) for line in path.read_text().splitlines()] == letters


def test_a_policy_is_read_back_as_it_was_written_and_is_skip_where_there_is_none(tmp_path: Path) -> None:
    folder = SourceFolder.of(tmp_path, "s")
    assert folder.read_policy() == ErrorPolicy()
    given = {"dead_letter_topic": "d", "max_errors_per_second": "0", "max_raw_message_size": "64KB"}
    policy = ErrorPolicy.of(
        "dead_letter", given | {"max_error_ratio": "0.25", "include_raw_message": "false"}
    )
    assert policy == ErrorPolicy("dead_letter", "d", None, None, 0, False, 65536, 0.25, None)
    folder.write_policy(policy)
    assert folder.read_policy() == policy
    assert ErrorPolicy.of("dead_letter", {"dead_letter_topic": "d"}) == ErrorPolicy("dead_letter", "d")


@pytest.mark.parametrize(
    ("strategy", "given", "option"),
    [
        ("drop", {}, "ON ERROR"),
        ("dead_letter", {}, "dead_letter_topic"),
        ("dead_letter", {"dead_letter_topic": "d", "dead_letter_path": "p"}, "dead_letter_path"),
        ("dead_letter", {"dead_letter_topic": "d", "max_errors_per_second": "-1"}, "max_errors_per_second"),
        ("dead_letter", {"dead_letter_topic": "d", "max_error_ratio": "2"}, "max_error_ratio"),
        ("skip", {"dead_letter_topic": "d"}, "dead_letter_topic"),
        ("fail", {"max_consecutive_errors": "0"}, "max_consecutive_errors"),
    ],
)
def test_a_clause_that_makes_no_sense_is_refused_by_the_name_of_its_option(
    strategy: str, given: dict[str, str], option: str
) -> None:
    with pytest.raises(OptionError) as caught:
        ErrorPolicy.of(strategy, given)
    assert caught.value.option == option


def test_one_line_a_second_for_each_source_and_kind(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    report = Report(lambda: now)
    for step in range(50):
        now = step / 10
        report.tell("s", "v", "Other", 2, "t-0 at offset 1: Other: why")
        report.tell("s", "v", "TypeConversion", 1, None)
    report.flush()
    lines = [record.getMessage() for record in caplog.records]
    other = [line for line in lines if "kind=Other" in line]
    assert len(other) == 6
    assert sum(int(line.split("count=")[1].split()[0]) for line in other) == 100
    assert all("source=s" in line for line in lines)
    assert len(lines) == 12


def test_what_became_of_bad_records_is_an_event_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    report = Report(lambda: 0.0)
    with caplog.at_level("INFO", logger="forebay.errors"):
        report.done("s", "v", "letters_written", 3)
        report.done("s", "v", "letters_written", 4)
        report.done("s", "w", "letters_kept_out", 5)
        report.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "event=letters_written source=s count=3 views=v",
        "event=letters_kept_out source=s count=5 views=w remedy='forebay dlq recover --source s'",
        "event=letters_written source=s count=4 views=v",
    ]
    # A log that says no more than it has to says what is missing.
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


def test_an_event_without_an_example_has_none(caplog: pytest.LogCaptureFixture) -> None:
    report = Report(lambda: 0.0)
    report.tell("s", "v", "Other", 2, None)
    assert [record.getMessage() for record in caplog.records] == [
        "event=records_rejected source=s kind=Other count=2 views=v"
    ]
