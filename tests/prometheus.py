"""Prometheus and promtool for tests, from Debian's package; installed by the first test that needs them, where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import filelock
import pytest

PACKAGE = "prometheus"
_APT = ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE]


@cache
def _install() -> str:
    """Why it could not be installed; empty where it was."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "installing it takes root and apt"
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Two workers must not install at a time. RUNLEVEL keeps the package from starting its own server.
    with filelock.FileLock("/tmp/forebay-tests-apt.lock", timeout=300):
        if shutil.which(PACKAGE) is not None:
            return ""
        done = subprocess.run(_APT, capture_output=True, text=True, env={**env, "RUNLEVEL": "1"}, check=False)
        if done.returncode != 0:  # an image without package lists
            subprocess.run(["apt-get", "update"], capture_output=True, env=env, check=False)
            done = subprocess.run(
                _APT, capture_output=True, text=True, env={**env, "RUNLEVEL": "1"}, check=False
            )
    return "" if done.returncode == 0 else f"apt-get: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`. The test is skipped where it cannot be had."""
    found = shutil.which(name)
    why = "" if found else _install()
    found = found or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} of Debian's package '{PACKAGE}' is not here: {why}")
    return found
