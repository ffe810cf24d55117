"""`forebay` in a fresh Python, which says afterwards what it had to import."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HEAVY = ("pyspark", "sqlglot", "numpy", "pyarrow", "polars", "pandas", "deltalake")
_CODE = f"""
import atexit, sys

atexit.register(lambda: print("LOADED", *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr))
from forebay.cli.main import main
main()
"""


@dataclass(frozen=True)
class Done:
    """How a command ended. `heavy` are the modules of HEAVY that it imported."""

    code: int
    out: str
    words: str
    heavy: list[str]


def forebay(home: Path, *arguments: str, given: str = "", **environment: str) -> Done:
    """Run a command on a home; `given` is its stdin."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *arguments],
        env={**os.environ, "FOREBAY_HOME": str(home), "FOREBAY_STATE": str(home / "state"), **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    words, loaded, heavy = done.stderr.rpartition("LOADED")
    assert loaded, done.stderr
    return Done(done.returncode, done.stdout, words, heavy.split())
