"""What Spark's JVM says on stderr when a session starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from forebay.runtime.session import connect

with connect(Path(sys.argv[1]), "local[1]") as session:
    err = getattr(session.spark._jvm, "java.lang.System").err
    err.println("a word of the JVM")
    err.print("WARNING: without an end")
    err.flush()
    print(session.sql("SELECT 1 + 1 AS two").fetchall())
"""


def test_a_start_says_nothing_of_incubator_modules_and_all_else_is_passed_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[(2,)]\n"
    assert done.stderr == "a word of the JVM\nWARNING: without an end"
