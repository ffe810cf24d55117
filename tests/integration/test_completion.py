"""The completion of shells, in each shell that is installed here: what a person sees who presses Tab."""

from __future__ import annotations

import os
import pty
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fresh
import pytest

from forebay.catalog import Catalog, Definition

BIN = Path(sys.executable).parent
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a project file, whose home has a source and a view."""
    (tmp_path / "forebay.toml").write_text('home = "kept"\n[profiles.production]\nhome = "other"\n')
    (tmp_path / "kept").mkdir()
    catalog = Catalog(tmp_path / "kept" / "catalog.db")
    catalog.put(Definition("orders", "source", "CREATE SOURCE orders …", 0))
    catalog.put(Definition("revenue", "view", "CREATE MATERIALIZED VIEW revenue …", 0))
    catalog.close()
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    kept = {
        key: text for key, text in os.environ.items() if not key.startswith(("FOREBAY", "XDG", "ZDOTDIR"))
    }
    return kept | {"HOME": str(folder / "me"), "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}


def in_shell(shell: str, line: str, folder: Path) -> str:
    """Run a line in a shell that stays its parent: completion is installed for the shell that asks for it."""
    (folder / "me").mkdir(exist_ok=True)
    done = subprocess.run(
        [shell, "-c", f"{line}; true"], cwd=folder, env=environment(folder),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout


def in_bash(folder: Path, typed: str) -> str:
    words = typed.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    return in_shell(
        "bash",
        f"source ~/.bashrc; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; "
        '_forebay_completion forebay; echo "${COMPREPLY[*]}"',
        folder,
    )


def in_fish(folder: Path, typed: str) -> str:
    return in_shell("fish", f"complete -C '{typed}'", folder)


def in_zsh(folder: Path, typed: str) -> str:
    """zsh completes only where somebody types."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(shutil.which("zsh") or "zsh", ["zsh", "-i"], environment(folder) | {"PS1": "ready> "})
    seen = ""
    try:
        seen = _until(terminal, seen, lambda text: "ready>" in text)
        os.write(terminal, f"{typed}\t".encode())
        # A last letter of our own: when it is echoed, completion has ended.
        os.write(terminal, b"#")
        return _until(terminal, "", lambda text: "#" in text)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def _until(terminal: int, seen: str, done: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + 60
    while not done(seen):
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


ASK = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_installed_and_completes_commands_sources_views_and_profiles(
    shell: str, project: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    assert "completion installed" in in_shell(shell, "forebay --install-completion", project)
    ask = ASK[shell]
    assert "doctor" in ask(project, "forebay doc")
    assert "revenue" in ask(project, "forebay tail rev")
    assert "orders" in ask(project, "forebay dlq ls --source ord")
    assert "production" in ask(project, "forebay run --profile prod")


PROTOCOLS = {
    "bash": lambda typed: {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)},
    "zsh": lambda typed: {"_TYPER_COMPLETE_ARGS": typed},
    "fish": lambda typed: {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("forebay tail ", "revenue"),
        ("forebay dlq replay -s ", "orders"),
        ("forebay consume --source o", "orders"),
        ("forebay show --profile ", "production"),
        ("forebay show q", "queries"),
    ],
)
def test_names_complete_without_spark_a_parser_or_numpy(
    shell: str, typed: str, found: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done = fresh.forebay(project / "kept", _FOREBAY_COMPLETE=f"complete_{shell}", **PROTOCOLS[shell](typed))
    assert (done.code, done.heavy) == (0, [])
    assert found in done.out


def test_a_word_that_cannot_be_completed_makes_no_home_and_no_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forebay.toml").write_text("wrong = 1")
    done = fresh.forebay(
        tmp_path / "none", _FOREBAY_COMPLETE="complete_bash", **PROTOCOLS["bash"]("forebay tail ")
    )
    assert (done.code, done.out.strip(), done.words.strip()) == (0, "", "")
    assert not (tmp_path / "none").exists()


def test_a_name_completes_about_as_fast_as_python_imports_typer(project: Path) -> None:
    """As a ratio, since this machine may be busy: with typer at 0.1 s, half a second is five times that."""
    asked = environment(project) | {
        "_FOREBAY_COMPLETE": "complete_bash",
        **PROTOCOLS["bash"]("forebay tail "),
    }

    def timed(*arguments: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=asked, cwd=project, check=True, capture_output=True)
        return time.perf_counter() - began

    timed("-m", "forebay")  # compiles
    ratios = [timed("-m", "forebay") / timed("-c", "import typer") for _ in range(7)]
    assert statistics.median(ratios) < 6
