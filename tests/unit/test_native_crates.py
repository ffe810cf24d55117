"""The native reader is built from the crates of `native/crates.list`, and from no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = (ROOT / "native" / "crates.list").read_text()
NAME, VERSION, CHECKSUM = next(line for line in LIST.splitlines() if line.startswith("memchr ")).split()
MATURIN = """#!/bin/sh
echo "$@" >maturin.called
while [ "$1" != --out ]; do shift; done
mkdir -p "$2" && touch "$2/forebay_native.whl"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy in which nothing is compiled; cargo looks only at what it has seen of the registry before."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    for folder in ("scripts", "native/src", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("scripts/crates.sh", "scripts/native.sh", "native/Cargo.toml", "native/crates.list"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "native" / "src" / "lib.rs").touch()
    (tmp_path / ".venv" / "bin" / "maturin").write_text(MATURIN)
    (tmp_path / ".venv" / "bin" / "maturin").chmod(0o755)
    if run(tmp_path, "cargo", "generate-lockfile", "--manifest-path", "native/Cargo.toml").returncode:
        pytest.skip("cargo has not seen the registry")
    return tmp_path


def run(project: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CARGO_NET_OFFLINE": "true", "XDG_CACHE_HOME": str(project / "cache")} | more
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def listed(lock: str) -> str:
    """The crates of a Cargo.lock, as the list has them."""
    form = re.compile(r'name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"')
    return "".join(" ".join(found) + "\n" for found in form.findall(lock))


def test_the_list_has_names_versions_and_checksums_and_nothing_else() -> None:
    lines = LIST.splitlines()
    assert lines == sorted(set(lines))
    assert [line for line in lines if not re.fullmatch(r"[\w-]+ \d[\w.+-]* [0-9a-f]{64}", line)] == []
    assert {"ring", "rustls", "rustls-webpki", "zstd-sys"} <= {line.split()[0] for line in lines}


def test_the_lock_is_made_of_the_list_alone(project: Path) -> None:
    (project / "native" / "Cargo.lock").unlink()
    assert run(project, "sh", "scripts/crates.sh", "lock").returncode == 0
    assert listed((project / "native" / "Cargo.lock").read_text()) == LIST


def test_updating_writes_what_cargo_finds(project: Path) -> None:
    (project / "native" / "crates.list").write_text("")
    assert run(project, "sh", "scripts/crates.sh", "update").returncode == 0
    found = (project / "native" / "crates.list").read_text()
    assert found == listed((project / "native" / "Cargo.lock").read_text())
    assert len(found.splitlines()) > 50


CHANGES: dict[str, Callable[[str], str]] = {
    "another checksum": lambda text: text.replace(CHECKSUM, CHECKSUM[::-1]),
    "a version that is not there": lambda text: text.replace(f"{NAME} {VERSION}", f"{NAME} 2.0.999"),
    "another version's checksum": lambda text: text.replace(f"{NAME} {VERSION}", f"{NAME} 2.7.0"),
    "a crate less": lambda text: text.replace(f"{NAME} {VERSION} {CHECKSUM}\n", ""),
    "a crate more": lambda text: text + f"zzz 1.0.0 {CHECKSUM}\n",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("locked_before", [False, True])
def test_a_build_from_other_crates_is_refused(project: Path, change: str, locked_before: bool) -> None:
    if locked_before:
        assert run(project, "sh", "scripts/crates.sh", "lock").returncode == 0
    (project / "native" / "crates.list").write_text(CHANGES[change](LIST))
    done = run(project, "sh", "scripts/native.sh", "build")
    assert done.returncode == 1
    assert "refused: the crates are not those of native/crates.list" in done.stderr
    assert not (project / "maturin.called").exists()


def test_a_dependency_that_the_list_does_not_have_is_refused(project: Path) -> None:
    assert run(project, "sh", "scripts/crates.sh", "lock").returncode == 0
    manifest = project / "native" / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('snap = "=1.1.2"\n', ""))
    assert run(project, "sh", "scripts/crates.sh", "lock").returncode == 2


def test_without_the_registry_nothing_is_built_from_an_older_lock(project: Path) -> None:
    assert run(project, "sh", "scripts/crates.sh", "lock").returncode == 0
    (project / "native" / "crates.list").write_text(CHANGES["another checksum"](LIST))
    rustup = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    empty = {"CARGO_HOME": str(project / "cargo"), "RUSTUP_HOME": rustup}
    done = run(project, "sh", "scripts/native.sh", "build", **empty)
    assert "could not be built" in done.stderr
    assert done.returncode == 0  # records are decoded in Python
    assert not (project / "maturin.called").exists()


def test_a_build_takes_the_lock_as_it_is_and_is_another_for_another_list(project: Path) -> None:
    assert run(project, "sh", "scripts/native.sh", "build").returncode == 0
    assert "--locked" in (project / "maturin.called").read_text().split()
    wheels = list((project / "cache").rglob("*.whl"))
    assert len(wheels) == 1
    (project / "maturin.called").unlink()
    assert run(project, "sh", "scripts/native.sh", "build").returncode == 0
    assert not (project / "maturin.called").exists()  # it is there
    (project / "native" / "crates.list").write_text(CHANGES["another checksum"](LIST))
    assert run(project, "sh", "scripts/native.sh", "build").returncode == 1
