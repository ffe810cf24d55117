"""Locks between processes: one holder, refused at once, gone with the process that held it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay import locks
from forebay.devstack.artifact_cache import locked
from forebay.errors import AlreadyRunningError
from forebay.runtime.lock import ViewLock
from forebay.views.paths import ViewPaths

HOLD = """
import os, sys
from pathlib import Path
from forebay import locks
held = locks.take(Path(sys.argv[1]), "process of a test")
if "fork" not in sys.argv or os.fork() == 0:
    print("held" if held else "refused", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds it, until it is ended or its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


def test_what_another_process_holds_is_refused_at_once_and_says_who_has_it(path: Path) -> None:
    with holder(path):
        assert locks.take(path, "mine") is None
        assert locks.note_of(path) == "process of a test"  # and not that of whoever was refused


def test_a_killed_holder_leaves_no_lock(path: Path) -> None:
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        held = locks.take(path, "mine")
        assert held is not None
        assert locks.note_of(path) == "mine"
        held.release()


def test_one_process_does_not_hold_it_twice_either(path: Path) -> None:
    first = locks.take(path)
    assert first is not None
    assert locks.take(path) is None
    first.release()
    again = locks.take(path)
    assert again is not None
    again.release()


def test_any_thread_may_let_go(path: Path) -> None:
    held = locks.take(path)
    assert held is not None
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    with holder(path):
        pass


def test_a_process_that_was_forked_from_the_holder_does_not_keep_it(path: Path) -> None:
    with holder(path, "fork") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        held = locks.take(path)  # the forked one waits for its input all the while
        assert held is not None
        held.release()


def test_who_waits_is_told_once_and_has_it_when_the_other_lets_go(path: Path) -> None:
    said: list[str] = []
    with holder(path) as process:

        def wait() -> None:
            said.append("waiting")
            assert process.stdin is not None
            process.stdin.close()

        with locked(path, wait):
            assert locks.take(path) is None
    assert said == ["waiting"]


def test_a_view_says_which_process_runs_it(tmp_path: Path) -> None:
    paths = ViewPaths(tmp_path)
    lock = ViewLock("v", paths)
    lock.acquire()
    with pytest.raises(AlreadyRunningError, match=rf"view 'v' is being run by process {os.getpid()}\b"):
        ViewLock("v", paths).acquire()
    lock.release()
    lock.release()
    lock.acquire()
    lock.release()
