"""The error tree: codes, text, the caret, and the way through pickle and Spark's tracebacks."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from forebay import errors
from forebay.errors import (
    AuthError,
    ForebayError,
    OffsetOutOfRangeError,
    OptionError,
    OptionValueError,
    Position,
    RecordError,
    SqlSyntaxError,
    StatementError,
    UnknownTopicError,
    UnreachableError,
    all_errors,
    from_text,
)

CLASSES = sorted(all_errors().values(), key=lambda cls: cls.code)


def subclasses(cls: type[ForebayError]) -> list[type[ForebayError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in subclasses(child))]


def drawn() -> list[tuple[int, str, str]]:
    """(depth, name, code) of each line of the tree in the module's docstring."""
    lines = re.findall(r"^    ([│├└─ ]*)(\w+) +(FB\d{4})", errors.__doc__ or "", re.MULTILINE)
    return [(len(lead) // 4, name, code) for lead, name, code in lines]


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in subclasses(ForebayError)]
    assert len(codes) == len(set(codes)) == len(all_errors())


def test_the_docstring_draws_every_error_with_its_code_under_its_parent() -> None:
    tree = drawn()
    assert {(name, code) for _, name, code in tree} == {(cls.__name__, cls.code) for cls in CLASSES}
    path: list[str] = []
    for depth, name, code in tree:
        path[depth:] = [name]
        parent = all_errors()[code].__bases__[0].__name__
        assert depth == 0 or parent == path[depth - 1]


@pytest.mark.parametrize("line", re.findall(r"FB\d{4}  .*", errors.__doc__ or ""))
def test_the_docstring_tells_the_truth_about_retries_and_exit_codes(line: str) -> None:
    cls = all_errors()[line[:6]]
    assert ("retryable" in line) == cls.retryable
    said = re.search(r"exit code (\d)", line)
    if said:
        assert cls.exit_code == int(said[1])


def test_only_what_passes_by_itself_is_retryable() -> None:
    assert {cls.__name__ for cls in CLASSES if cls.retryable} == {
        "UnreachableError",
        "CommitError",
        "DiskFullError",
        "ReadStalledError",
        "DownloadError",
        "HandlerTimeoutError",
        "IndexBehindError",
        "PartitionsLostError",
        "StorageError",
        "WorkerLostError",
    }


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_every_error_survives_pickling_with_all_it_knows(cls: type[ForebayError], protocol: int) -> None:
    error = cls("it broke", remedy="mend it", topic="t", ranges=[(0, 5)])
    if isinstance(error, StatementError):
        error.at(Position(1, 3, 2), "SELECT 1")
    if isinstance(error, OptionError):
        error.option = "group.id"
    if isinstance(error, RecordError):
        error.kind = "TypeMismatch"
    error.add_note("seen in task 3")
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(again) is cls
        assert vars(again) == vars(error)
        assert again.args == error.args
        assert str(again) == str(error)
        assert again.details == {"topic": "t", "ranges": [(0, 5)]}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_text_starts_with_the_code_and_ends_with_the_remedy(cls: type[ForebayError]) -> None:
    text = str(cls("it broke", remedy="mend it"))
    assert text == f"{cls.code}: it broke\n  remedy: mend it"


def test_without_a_remedy_of_its_own_an_error_has_its_kinds_remedy_or_none() -> None:
    assert str(ForebayError("it broke")) == "FB0000: it broke"
    assert "remedy: check the address" in str(UnreachableError("away"))


def lines_of(error: StatementError) -> list[str]:
    return str(error).splitlines()


def test_the_caret_stands_under_the_place() -> None:
    error = SqlSyntaxError(
        "unexpected 'FORM'", position=Position(2, 10, 4), statement="SELECT 1,\n       2 FORM t"
    )
    head, line, caret = lines_of(error)
    assert head == "FB1001: unexpected 'FORM' (line 2, column 10)"
    assert line == "  2 |        2 FORM t"
    assert caret == "    |          ^^^^"
    assert line[caret.index("^") : caret.rindex("^") + 1] == "FORM"


def test_the_caret_stands_under_the_place_behind_tabs() -> None:
    error = SqlSyntaxError("no", position=Position(1, 4, 3), statement="\tx\tbad")
    _, line, caret = lines_of(error)
    assert line == "  1 | \tx\tbad"
    assert caret == "    | \t \t^^^"
    assert line.expandtabs().index("bad") == caret.expandtabs().index("^")


def test_the_gutter_grows_with_the_line_number() -> None:
    statement = "\n" * 99 + "SELECT bad"
    _, line, caret = lines_of(SqlSyntaxError("no", position=Position(100, 8, 3), statement=statement))
    assert line == "  100 | SELECT bad"
    assert line[caret.index("^") :] == "bad"


@pytest.mark.parametrize("position", [Position(0, 1), Position(3, 1)])
def test_a_place_outside_the_statement_draws_nothing(position: Position) -> None:
    assert len(lines_of(SqlSyntaxError("no", position=position, statement="a\nb"))) == 1


def test_a_caret_has_at_least_one_mark() -> None:
    assert lines_of(SqlSyntaxError("no", position=Position(1, 2, 0), statement="a"))[2].endswith(" ^")


def test_the_first_place_an_error_is_given_is_kept() -> None:
    error = SqlSyntaxError("no", position=Position(1, 1), statement="a")
    assert error.at(Position(9, 9), "b") is error
    assert (error.position, error.statement) == (Position(1, 1), "a")
    assert SqlSyntaxError("no").at(Position(2, 2), "x").position == Position(2, 2)


@pytest.mark.parametrize(
    "line",
    [
        "'kafka.sasl.password' = 'hunter2', 'topic' = 't'",
        "sasl_password = 'hunter2', topic = 't'",
        "'schema.registry.bearer.token' = 'hunter2'",
        "'kafka.ssl.key.pem'='hunter2'",
        "'kafka.sasl.oauthbearer.client.secret'   =   'hunter2'",
        "'kafka.basic.auth.credentials' = 'hunter2'",
        "'kafka.ssl.key.PASSWORD' = 'hunter2",
    ],
)
def test_a_secret_beside_the_mistake_is_starred_and_the_caret_stays_in_place(line: str) -> None:
    shown = lines_of(SqlSyntaxError("no", position=Position(1, 1), statement=line))[1]
    assert "hunter2" not in shown
    assert shown == "  1 | " + line.replace("hunter2", "*******")


def test_a_quote_inside_a_secret_does_not_end_it() -> None:
    line = "'kafka.sasl.password' = 'it''s hunter2', 'topic' = 'orders'"
    shown = str(SqlSyntaxError("no", position=Position(1, 1), statement=line))
    assert "hunter2" not in shown
    assert "'orders'" in shown


SPARK_TEXT = """[STREAM_FAILED] Query [id = 7c, runId = 1f] terminated with exception: \
Traceback (most recent call last):
  File "/opt/pyspark/worker.py", line 2068, in main
    process()
  File "/src/forebay/kafka/reader.py", line 118, in _lose
    raise OffsetOutOfRangeError(...)
forebay.errors.OffsetOutOfRangeError: FB3004: 3 records are gone before they were read: t-0 [2, 5)
  remedy: the broker no longer has these records
 SQLSTATE: XXKST
"""


def test_our_error_is_found_in_the_text_that_spark_makes_of_it() -> None:
    found = from_text(SPARK_TEXT)
    assert type(found) is OffsetOutOfRangeError
    assert found.message == "3 records are gone before they were read: t-0 [2, 5)"
    assert found.remedy == "the broker no longer has these records"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_found_again_in_a_traceback(cls: type[ForebayError]) -> None:
    text = f"org.apache.spark.SparkException: Job aborted\nforebay.errors.{cls.__name__}: {cls('it broke')}\n\tat x"
    found = from_text(text)
    assert type(found) is cls
    assert (found.message, found.remedy) == ("it broke", cls.default_remedy)


@pytest.mark.parametrize(
    "text", ["", "java.lang.NullPointerException", "FB9999: never heard of", "XFB3004: no"]
)
def test_in_another_text_there_is_none_of_ours(text: str) -> None:
    assert from_text(text) is None


def test_one_except_clause_catches_a_branch() -> None:
    for error in (OptionValueError("x", option="a"), SqlSyntaxError("x")):
        assert isinstance(error, StatementError)
        assert error.exit_code == 2
    assert AuthError("x").exit_code == UnreachableError("x").exit_code == 3
    assert UnknownTopicError("x").exit_code == 2
