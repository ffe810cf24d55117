"""The versions that driver and workers of a cluster must have in common.

Tasks and their answers cross from one Python to another as pickles and as Arrow: of another version they may be read wrongly, or
not at all. A worker looks before it imports anything that could fail for that reason, so this module imports little, and nothing
that only a new Python understands.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from forebay.errors import WorkerVersionError

DRIVER = "FOREBAY_DRIVER_VERSIONS"  # the environment variable that tells a worker what the driver has
NATIVE = "forebay-native"
NONE = "none"
FOREBAY = "forebay"
PACKAGE = Path(__file__).parent.parent


@cache
def own() -> dict[str, str]:
    """What this process has, by name."""
    import pyspark

    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "forebay": f"{_version(FOREBAY)}+{_digest(PACKAGE)}",
        NATIVE: NONE if os.environ.get("FOREBAY_NATIVE") == "0" else _version(NATIVE),
        "pyspark": pyspark.__version__,
        "pyarrow": _version("pyarrow"),
    }


def to_text(versions: dict[str, str]) -> str:
    """As an environment variable carries it: nothing that a shell between Spark and the worker would touch."""
    return ",".join(f"{name}={version}" for name, version in versions.items())


def from_text(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in text.split(",") if "=" in each)


def check(driver: dict[str, str]) -> None:
    """On a worker: a WorkerVersionError that names this host, and what differs from the driver's."""
    here = own()
    differ = [name for name, version in driver.items() if here.get(name, NONE) != version]
    if differ:
        listed = "; ".join(f"{name} {here.get(name, NONE)}, the driver {driver[name]}" for name in differ)
        raise WorkerVersionError(f"the worker on {socket.gethostname()} is not used: it has {listed}")


def check_environment() -> None:
    """The same, where the driver's versions came with the environment."""
    if text := os.environ.get(DRIVER):
        check(from_text(text))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NONE


def _digest(package: Path) -> str:
    """Of the code: a checkout has the same version through many changes."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:8]
