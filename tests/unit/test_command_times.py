"""How long a command takes, beside a Python that does nothing but import typer: in CPU time, which other processes do not change much."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
from homes import finished_view

RATIO = 25  # measured: 10


def cpu_s(arguments: list[str], home: Path) -> float:
    """User and system time of a Python with these arguments: the least of three."""
    times = []
    for _ in range(3):
        process = os.posix_spawn(
            sys.executable,
            [sys.executable, *arguments],
            {**os.environ, "FOREBAY_HOME": str(home)},
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        _, status, used = os.wait4(process, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        times.append(used.ru_utime + used.ru_stime)
    return min(times)


def test_a_select_over_a_finished_view_is_answered_at_once(tmp_path: Path) -> None:
    finished_view(tmp_path, "bars", pa.table({"symbol": ["a", "b"] * 500, "volume": list(range(1000))}))
    base = cpu_s(["-c", "import typer"], tmp_path)
    query = "SELECT * FROM bars ORDER BY volume DESC LIMIT 5"
    select = cpu_s(["-m", "forebay", "sql", "-e", query], tmp_path)
    assert select < RATIO * base, f"{select:.2f} s, {select / base:.1f} times what importing typer takes"
