"""Flock programs on the blackboard: two processes share the work, and one that is killed loses none of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from forebay.blackboard.flock import KafkaBlackboardStore

PROGRAM = Path(__file__).with_name("program.py")
SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]


class Program:
    """One process of the program, and what it has said."""

    def __init__(self, prefix: str, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), SERVERS, prefix, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def runs(self) -> list[str]:
        return [line for line in self.lines if line.startswith("ran ")]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def until(condition: Callable[[], Any], what: str, timeout: float = 90) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def programs() -> Any:
    started: list[Program] = []

    def start(prefix: str, count: int) -> Program:
        started.append(Program(prefix, count))
        return started[-1]

    yield start
    for each in started:
        each.end()


async def shipped(prefix: str) -> list[int]:
    store = KafkaBlackboardStore(SERVERS, topic_prefix=prefix, partitions=4)
    try:
        found, _ = await store.query_artifacts(limit=0, consistency="latest")
        return sorted(each.payload["n"] for each in found if each.type == "Shipped")
    finally:
        await store.close()


async def test_two_processes_share_the_work_and_each_agent_runs_once_for_each_artifact(programs: Any) -> None:
    prefix, count = f"flock-{uuid4().hex}.", 24
    one, two = programs(prefix, count), programs(prefix, 0)
    until(lambda: "ready" in one.lines and "ready" in two.lines, "both are there", 150)
    one.go_on()
    two.go_on()
    until(lambda: len(one.runs()) + len(two.runs()) >= 2 * count, "all agents have run")
    assert one.runs()
    assert two.runs()
    for each in (one, two):
        each.go_on()
        assert each.process.wait(60) == 0
    assert Counter([*one.runs(), *two.runs()]) == {
        f"ran {agent} {n}": 1 for agent in ("pricing", "shipping") for n in range(count)
    }
    assert await shipped(prefix) == list(range(count))


async def test_what_a_killed_process_was_at_is_done_by_the_other(programs: Any) -> None:
    prefix, count = f"flock-{uuid4().hex}.", 40
    one, two = programs(prefix, count), programs(prefix, 0)
    until(lambda: "ready" in one.lines and "ready" in two.lines, "both are there", 150)
    two.go_on()
    one.go_on()
    until(lambda: len(two.runs()) >= 5 and "published" in one.lines, "the second is at work")
    two.end()  # SIGKILL
    until(lambda: len(set(one.runs()) | set(two.runs())) >= 2 * count, "the first does the rest")
    one.go_on()
    assert one.process.wait(60) == 0
    assert sorted(set(await shipped(prefix))) == list(range(count))
