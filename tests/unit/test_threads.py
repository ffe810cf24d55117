"""Background threads: a body that raises is never silent."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest

from forebay import threads

SOURCES = Path(threads.__file__).parent


def test_what_a_body_raises_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Exception] = []

    def body() -> None:
        raise ValueError("strange")

    with caplog.at_level(logging.ERROR, "forebay.threads"):
        threads.start("forebay-once", body, heard.append).join(10)
    assert [str(error) for error in heard] == ["strange"]
    assert "forebay-once" in caplog.text
    [record] = [each for each in caplog.records if each.name == "forebay.threads"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "strange"


def test_a_report_that_raises_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    def body() -> None:
        raise ValueError("strange")

    def report(error: Exception) -> None:
        raise KeyError("stranger")

    with caplog.at_level(logging.ERROR, "forebay.threads"):
        threads.start("forebay-once", body, report).join(10)
    assert "stranger" in caplog.text


def test_a_thread_that_works_until_it_is_closed_goes_on_after_a_failure() -> None:
    heard: list[Exception] = []
    runs: list[int] = []

    def body() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise ValueError(f"failure {len(runs)}")

    threads.keep_running("forebay-loop", body, threading.Event(), heard.append).join(30)
    assert runs == [0, 1, 2]
    assert [str(error) for error in heard] == ["failure 1", "failure 2"]


def test_a_closed_thread_is_not_run_again() -> None:
    closed = threading.Event()

    def body() -> None:
        closed.set()
        raise ValueError("while it was being closed")

    thread = threads.keep_running("forebay-loop", body, closed)
    thread.join(10)
    assert not thread.is_alive()


def test_no_room_starts_a_thread_by_itself() -> None:
    """`threading.Thread` stands in one file, or a body that raises could be silent again."""
    found = [
        f"{path.relative_to(SOURCES)}:{number}"
        for path in sorted(SOURCES.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"threading\.Thread\(|[^.\w]Thread\(", line) and path.name != "threads.py"
    ]
    assert not found, found
