"""Find a Java that is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forebay.errors import JavaMissingError

MINIMUM = 17


@dataclass(frozen=True)
class Java:
    """An executable, its major version, and its own full words about itself."""

    path: str
    major: int
    banner: str


def find_java() -> Java:
    """The first Java of version 17 or newer: `JAVA_HOME`'s, else the one on the `PATH`."""
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@cache
def _find(java_home: str, path: str) -> Java:
    rejected: list[str] = []
    home_java = str(Path(java_home) / "bin" / "java") if java_home else ""
    for where, executable in (("JAVA_HOME", home_java), ("PATH", shutil.which("java", path=path) or "")):
        if not executable:
            continue
        java = _probe(executable)
        if java and java.major >= MINIMUM:
            return java
        found = f"is version {java.major}" if java else "does not run"
        rejected.append(f"{executable} (from {where}) {found}")
    detail = "; ".join(rejected) or "JAVA_HOME is not set and there is no java on the PATH"
    raise JavaMissingError(f"Java {MINIMUM} or newer is needed: {detail}")


def _probe(executable: str) -> Java | None:
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    major = major_version(done.stderr)
    return Java(executable, major, done.stderr) if done.returncode == 0 and major else None


def major_version(banner: str) -> int:
    """The major version in the words of `java -version`, 0 if there is none; 1.8 is 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if not match:
        return 0
    first = int(match[1])
    return int(match[2] or 0) if first == 1 else first
