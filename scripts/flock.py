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

from forebay.cache import cache_root
from forebay.devstack import DevStack

VERSION = "0.5.700"
ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "interop" / "flock"
SUITES = (
    "tests/test_store.py",
    "tests/test_store_graph.py",
    "tests/contract/test_artifact_storage_contract.py",
    "tests/integration/test_sqlite_store_integration.py",
)
PACKAGES = (
    f"flock-core=={VERSION}", "confluent-kafka>=2.16,<3", "platformdirs", "prometheus-client",
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


def environment(folder: Path) -> Path:
    """The environment's python; made when its list of packages is another one."""
    python, wanted = folder / "venv" / "bin" / "python", "\n".join(PACKAGES)
    stamp = folder / "packages.txt"
    if not python.exists() or not stamp.exists() or stamp.read_text() != wanted:
        say(f"making an environment for Flock {VERSION} (some minutes, once)")
        shutil.rmtree(folder / "venv", ignore_errors=True)
        subprocess.run([find_python(), "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        stamp.write_text(wanted)
    return python


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
    folder = cache_root() / f"flock-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    python = environment(folder)
    unpacked = sources(folder, python)
    with DevStack() as stack:
        env = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": stack.bootstrap_servers,
            "FOREBAY_FLOCK": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TESTS)]),
            "FLOCK_DISABLE_TELEMETRY_AUTOSETUP": "1",
        }
        run = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        say(f"the store suites of Flock {VERSION}")
        suites = subprocess.run([*run, "-p", "in_place", *SUITES], cwd=unpacked, env=env)
        say("Flock programs")
        own = [*run, "-c", str(TESTS / "pytest.ini"), "--rootdir", str(TESTS), *sys.argv[1:], str(TESTS)]
        programs = subprocess.run(own, cwd=TESTS, env=env)
    return suites.returncode or programs.returncode


if __name__ == "__main__":
    sys.exit(main())
