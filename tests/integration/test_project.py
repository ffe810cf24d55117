"""What forebay init writes runs as it is written; forebay doctor on a stack that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Cluster, unique

from forebay.cli.init import FILES
from forebay.devstack import DevStack

BIN = Path(sys.executable).parent


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Any]:
    """A command line as a person types it, with a dev stack of its own."""
    environment = {
        key: text
        for key, text in os.environ.items()
        if key not in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "FOREBAY_HOME", "FOREBAY_PROFILE")
    } | {"PATH": f"{BIN}:{os.environ['PATH']}", "FOREBAY_STATE": str(tmp_path / "state"), "COLUMNS": "120"}

    def run(line: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-c", line], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250
        )
        assert done.returncode == code, f"{line}: {done.stdout}{done.stderr}"
        return done

    yield run
    run("forebay dev down --wipe", tmp_path)


def commands(readme: str) -> list[str]:
    """The lines of its blocks."""
    blocks = readme.split("```")[1::2]
    return [line for block in blocks for line in block.strip().splitlines()]


@pytest.mark.timeout(600)
def test_what_init_writes_runs_as_its_readme_says_and_its_test_passes(shell: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    said = shell("forebay init shop", empty).stderr
    folder = empty / "shop"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES.values())
    first, *others = said.partition("next:\n")[2].splitlines()
    assert first.strip() == "cd shop && forebay dev up --no-registry"
    done = {line: shell(line, folder) for line in commands((folder / "README.md").read_text())}
    typed = {each.strip().split(" && ")[-1] for each in (first, *others)}
    assert typed <= {line.removesuffix(" --if-not-exists") for line in done}
    ran = done["forebay run pipeline.sql --until-caught-up"]
    assert "NL" in ran.stdout
    assert "1 rejected" in ran.stderr
    assert "orders/0/3" in done["forebay dlq ls --source orders"].stdout
    assert "1 passed" in done["python -m pytest"].stdout
    assert (folder / ".forebay" / "views" / "revenue" / "table" / "_delta_log").is_dir()


def test_init_overwrites_nothing_unless_it_is_forced_and_then_says_so(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    refused = shell("forebay init", tmp_path, code=2)
    assert "README.md" in refused.stderr
    assert "--force" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"
    forced = shell("forebay init --force", tmp_path)
    assert "overwritten: README.md" in forced.stderr
    assert (tmp_path / "README.md").read_text() != "mine"
    assert "cd " not in forced.stderr


def test_doctor_finds_a_stack_that_runs_and_records_from_the_future(
    cluster: Cluster, broker: DevStack, shell: Any, tmp_path: Path
) -> None:
    (tmp_path / "forebay.toml").write_text(f'brokers = "{cluster.bootstrap_servers}"')
    found = json.loads(shell("forebay doctor -o json", tmp_path).stdout)
    states = {each["check"]: each for each in found}
    assert states["brokers"]["found"] == f"1 at {cluster.bootstrap_servers}"
    topic = unique("future")
    shell(f"forebay topic create {topic}", tmp_path)
    ahead_ms = int((time.time() + 3_000) * 1000)
    line = json.dumps({"value": "x", "timestamp": ahead_ms})
    try:
        shell(f"echo '{line}' | forebay produce {topic} --envelope", tmp_path)
        clock = next(
            each
            for each in json.loads(shell("forebay doctor -o json", tmp_path).stdout)
            if each["check"] == "clock"
        )
        assert clock["state"] == "warn"
        assert topic in clock["found"]
    finally:
        shell(f"forebay topic delete {topic} --yes", tmp_path)
