"""Lines that change in place: what fits, and where the log goes meanwhile."""

from __future__ import annotations

import io
import logging
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from forebay.cli.live import Cell, StderrHandler, fitted
from forebay.deadletter.stacktrace import LONGEST, stacktrace_of
from forebay.errors import ForebayError
from forebay.pace import Pace
from forebay.pool.stats import PartitionStats, PoolStats

ROW = [
    Cell("bars", "bold"),
    Cell("running"),
    Cell("12 records", right=True),
    Cell("1/s", spare=1),
    Cell("9 ms", spare=2),
]


def test_cells_stand_below_one_another() -> None:
    rows = [ROW, [Cell("by_user"), Cell("stopped"), Cell("1,400 records", right=True), Cell("–"), Cell("")]]
    assert fitted(rows, None).plain.splitlines() == [
        "bars     running     12 records  1/s  9 ms",
        "by_user  stopped  1,400 records  –",
    ]


def test_what_can_be_spared_goes_first_where_it_is_narrow() -> None:
    assert fitted([ROW], 34).plain == "bars  running  12 records  1/s"
    assert fitted([ROW], 25).plain == "bars  running  12 records"
    assert fitted([ROW], 10).plain == "bars  run…"


def test_a_column_that_is_empty_in_every_row_takes_no_room() -> None:
    assert fitted([[Cell("a"), Cell(""), Cell("b")]], None).plain == "a  b"
    assert fitted([], 80).plain == ""


@given(
    st.lists(st.lists(st.text("ab ", max_size=30), min_size=4, max_size=4), max_size=5), st.integers(1, 100)
)
def test_no_line_is_wider_than_the_terminal(texts: list[list[str]], width: int) -> None:
    rows = [[Cell(text, spare=place) for place, text in enumerate(row)] for row in texts]
    assert all(len(line) <= width for line in fitted(rows, width).plain.split("\n"))


def test_the_log_is_printed_above_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.StringIO()
    monkeypatch.setattr(sys, "stderr", made)
    console = Console(file=made, force_terminal=True, width=40)
    log = logging.Logger("test")
    log.addHandler(StderrHandler())
    with Live("the line", console=console, auto_refresh=False) as live:
        live.refresh()
        log.warning("a broker is away")
    lines = made.getvalue().split("\n")
    # The line is cleared, the log says what it has to, and the line comes again below it.
    said = next(number for number, line in enumerate(lines) if "a broker is away" in line)
    assert "\x1b[2K" in lines[said]
    assert "the line" in "".join(lines[said + 1 :])


def _raise() -> None:
    raise LookupError("no such customer")


def test_a_stacktrace_is_bounded_and_ends_where_it_was_raised() -> None:
    with pytest.raises(LookupError) as short:
        _raise()
    assert (stacktrace_of(short.value) or "").splitlines()[-1] == "LookupError: no such customer"
    deep: BaseException = ValueError("x" * 1_000_000)
    for number in range(100):
        deep.__cause__, deep = None, deep
        wrapped = RuntimeError(f"{number}")
        wrapped.__cause__ = deep
        deep = wrapped
    found = stacktrace_of(deep) or ""
    assert len(found) <= LONGEST
    assert found.endswith("RuntimeError: 99\n")


def test_an_error_of_our_own_has_no_stacktrace() -> None:
    assert stacktrace_of(ForebayError("no")) is None


def test_a_pace_is_kept_from_the_first_record_on() -> None:
    pace, began = Pace(100), time.monotonic()
    for _ in range(4):
        pace.wait(5)
    assert time.monotonic() - began >= 0.15
    free, began = Pace(None), time.monotonic()
    for _ in range(1_000):
        free.wait()
    assert time.monotonic() - began < 5  # at a hundred a second it would be ten


def _stats(*lags: int | None) -> PoolStats:
    partitions = tuple(PartitionStats("t", n, 0, 0, 0, lag, 0, False, False) for n, lag in enumerate(lags))
    return PoolStats("p", "running", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, partitions)


@pytest.mark.parametrize(("lags", "lag"), [((3, 4), 7), ((0,), 0), ((3, None), None), ((), None)])
def test_a_pools_lag_is_known_when_that_of_every_partition_is(
    lags: tuple[int | None, ...], lag: int | None
) -> None:
    assert _stats(*lags).lag == lag
