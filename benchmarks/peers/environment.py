"""Virtual environments for peers that must not share ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SETUP_TIMEOUT_S = 1800  # PySpark is 400 MB
MARKER = "complete.txt"


class PeerError(Exception):
    """A peer that cannot be set up or did not answer; the message goes into the report."""


def virtual_environment(directory: Path, requirements: Sequence[str], base: str = sys.executable) -> str:
    """The interpreter of an environment with these packages. Made once; half-made ones are made anew."""
    python, marker = directory / "bin" / "python", directory / MARKER
    wanted = "\n".join(requirements)
    if not marker.exists() or marker.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        run_checked([base, "-m", "venv", str(directory)], f"make {directory.name}")
        run_checked([str(python), "-m", "pip", "install", "--quiet", *requirements], f"fill {directory.name}")
        marker.write_text(wanted)
    return str(python)


def run_checked(command: Sequence[str], what: str) -> None:
    """Run a command of the set-up; its last words are the error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SETUP_TIMEOUT_S, check=False)
    if done.returncode:
        raise PeerError(f"could not {what}: {last_words(done.stderr or done.stdout)}")


def last_words(output: str) -> str:
    """The line of a failed program's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error" in line or "Exception" in line or "error:" in line:
            return line[:500]
    return lines[-1][:500] if lines else "it said nothing"
