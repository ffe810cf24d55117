"""The tutorial, typed in a terminal of 80 columns: what a person sees is what the page shows, whole.

`FOREBAY_TRANSCRIPT=FILE` keeps what was on the screen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks_of, shows
from screens import COLUMNS, TypedShell, typed_shell

BLOCKS = blocks_of(ROOT / "docs" / "tutorial.md")
CHOSEN = ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "FOREBAY_HOME", "FOREBAY_PROFILE", "NO_COLOR")


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path as short as a person's: commands show it, and pytest's own are wider than a terminal."""
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        yield Path(made)


@pytest.fixture
def shell(folder: Path) -> Iterator[TypedShell]:
    with tempfile.TemporaryDirectory(prefix="fb") as state:
        environment = {key: text for key, text in os.environ.items() if key not in CHOSEN} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "FOREBAY_STATE": state,
            "FOREBAY_MASTER": "local[2]",
        }
        try:
            with typed_shell(folder, environment) as opened:
                yield opened
        finally:
            down = [sys.executable, "-m", "forebay", "dev", "down", "--wipe"]
            subprocess.run(down, env=environment, check=True, capture_output=True, timeout=60)


def typed(shell: TypedShell, block: Block) -> str:
    lines: list[str] = []
    for command in block.text.splitlines():
        shown, code = shell.type(command, timeout=120)
        assert code == 0, f"{block.place}: {command} ends with {code}\n" + "\n".join(shown)
        lines += shown
    assert [line for line in lines if len(line) > COLUMNS] == [], block.place
    return "\n".join(lines)


TURNS = 2 if "FOREBAY_LONG" in os.environ else 1


@pytest.mark.timeout(900)
def test_the_tutorial_shows_in_80_columns_what_it_says_and_so_it_does_again(
    shell: TypedShell, folder: Path
) -> None:
    assert all(block.runs and block.language == "bash" for block in BLOCKS)
    try:
        for _ in range(TURNS):
            for block in BLOCKS:
                output = typed(shell, block)
                assert shows(block.expected or "", output), f"{block.place} shows\n{output}"
            assert list(folder.iterdir()) == []
    finally:
        if kept := os.environ.get("FOREBAY_TRANSCRIPT"):
            Path(kept).write_text(shell.transcript)
