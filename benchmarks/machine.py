"""What a figure was measured on, without saying whose machine it is."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

import psutil

_CPU_INFO = Path("/proc/cpuinfo")


def describe() -> str:
    memory = psutil.virtual_memory().total / 2**30
    cores = psutil.cpu_count() or 1
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cores} cores of {cpu_model()}, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}."
    )


def cpu_model() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine()


def busy() -> str:
    """How much else the machine had to do, for readers of noisy figures."""
    one, _, _ = psutil.getloadavg()
    return f"load average {one:.1f} before the first round"
