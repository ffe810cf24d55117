"""`make test-flock`: Flock's own store suites, and a Flock program, on a Kafka blackboard.

Flock needs Python 3.12 and brings many packages, so it gets an environment of its own in the user's cache; its
tests come from its source distribution, downloaded there. Neither is ever part of this project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from benchmarks.peers.environment import virtual_environment

from forebay.cache import cache_root
from forebay.devstack import DevStack

VERSION = "0.5.700"
FOLDER = cache_root() / f"flock-{VERSION}"
ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "interop" / "flock"
SUITES = (
    "tests/test_store.py",
    "tests/test_store_graph.py",
    "tests/contract/test_artifact_storage_contract.py",
    "tests/integration/test_sqlite_store_integration.py",
)
PACKAGES = (
    f"flock-core=={VERSION}", "confluent-kafka>=2.16,<3", "platformdirs", "prometheus-client", "orjson",
    "pytest>=9", "pytest-asyncio", "pytest-mock", "pytest-order", "pytest-timeout",
)  # fmt: skip


def say(text: str) -> None:
    print(f"test-flock: {text}", file=sys.stderr)


def find_python() -> str:
    """A Python of 3.12 or newer: PYTHON312, one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [os.environ.get("PYTHON312"), "python3.12", "python3.13"]
    candidates += [str(path) for path in sorted(pyenv.glob("3.1[23]*/bin/python3"))]
    for name in candidates:
        if not name or not shutil.which(name):
            continue
        done = subprocess.run(
            [name, "-c", "import sys; print(sys.version_info >= (3, 12))"], capture_output=True, text=True
        )
        if done.stdout.strip() == "True":
            return name
    sys.exit("test-flock: Flock needs Python 3.12 or newer; set PYTHON312=/path/to/python3.12")


def environment() -> Path:
    """The python of an environment that has Flock, and what Forebay's blackboard needs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "venv").exists():
        say(f"making an environment for Flock {VERSION} (some minutes, once)")
    return Path(virtual_environment(FOLDER / "venv", PACKAGES, find_python()))


def sources(folder: Path, python: Path) -> Path:
    """Flock's source distribution, unpacked."""
    unpacked = folder / f"flock_core-{VERSION}"
    if not unpacked.exists():
        say("downloading Flock's source distribution")
        download = [
            str(python),
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        subprocess.run(
            [*download, "--no-binary", ":all:", "--dest", str(folder), f"flock-core=={VERSION}"], check=True
        )
        with tarfile.open(folder / f"flock_core-{VERSION}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def main() -> int:
    python = environment()
    unpacked = sources(FOLDER, python)
    with DevStack() as stack:
        env = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": stack.bootstrap_servers,
            "FOREBAY_FLOCK": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TESTS)]),
            "FLOCK_DISABLE_TELEMETRY_AUTOSETUP": "1",
        }
        run = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::DeprecationWarning",
        ]
        say(f"the store suites of Flock {VERSION}")
        suites = subprocess.run([*run, "-p", "in_place", *SUITES], cwd=unpacked, env=env)
        say("Flock programs")
        own = [*run, "-c", str(TESTS / "pytest.ini"), "--rootdir", str(TESTS), *sys.argv[1:], str(TESTS)]
        programs = subprocess.run(own, cwd=TESTS, env=env)
    return suites.returncode or programs.returncode


if __name__ == "__main__":
    sys.exit(main())
