"""A command imports what it needs and no more: a person who asks for help does not wait for Spark's modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from fresh import forebay
from homes import finished_view

from forebay.cli.main import COMMANDS, load


@pytest.mark.parametrize(
    "command",
    ["--help", "--version", *(f"{name} --help" for name in COMMANDS)],
)
def test_help_and_version_import_neither_spark_nor_a_parser_nor_numpy(command: str, tmp_path: Path) -> None:
    done = forebay(tmp_path, *command.split())
    assert (done.code, done.heavy) == (0, [])
    assert done.out.strip()


@pytest.mark.parametrize(
    "command",
    ["show sources", "show views", "show queries", "show sinks", "lag", "dlq ls", "dlq stats"],
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_looking_at_a_home_imports_neither_spark_nor_a_parser_nor_numpy(
    command: str, output: str, tmp_path: Path
) -> None:
    done = forebay(tmp_path, *command.split(), "-o", output)
    assert (done.code, done.heavy) == (0, [])


@pytest.mark.parametrize(
    "command",
    [
        ["sql", "-e", "SELECT * FROM bars ORDER BY volume DESC LIMIT 5"],
        ["sql", "-e", "SELECT symbol, sum(volume) FROM bars WHERE price > 1.5 GROUP BY symbol", "-o", "json"],
        ["sql", "-e", "SELECT * FROM forebay_catalog.source_errors; SHOW VIEWS; DESCRIBE EXTENDED VIEW bars"],
        ["sql", "-e", "EXPLAIN SELECT * FROM bars; SHOW CREATE VIEW bars; SHOW QUERIES; SHOW SOURCES"],
        ["tail", "bars", "--timeout", "0"],
    ],
)
def test_looking_at_a_finished_view_imports_no_spark(command: list[str], tmp_path: Path) -> None:
    bars = pa.table({"symbol": ["a", "b"], "price": [1.0, 2.0], "volume": [1, 2]})
    finished_view(tmp_path, "bars", bars)
    done = forebay(tmp_path, *command)
    assert (done.code, "pyspark" in done.heavy) == (0, False), done.words
    assert done.out.strip()


def test_a_sorted_select_imports_neither_spark_nor_pandas(tmp_path: Path) -> None:
    finished_view(tmp_path, "bars", pa.table({"symbol": ["a", "b"], "volume": [1, 2]}))
    done = forebay(tmp_path, "sql", "-e", "SELECT * FROM bars ORDER BY volume DESC LIMIT 5")
    assert (done.code, {"pyspark", "pandas", "polars"} & {*done.heavy}) == (0, set())


def test_dev_status_imports_no_spark(tmp_path: Path) -> None:
    done = forebay(tmp_path, "dev", "status")
    assert (done.code, done.heavy) == (3, [])


@pytest.mark.parametrize(
    "line", ["forebay ", "forebay dl", "forebay dlq ", "forebay show ", "forebay run --"]
)
def test_completion_imports_neither_spark_nor_a_parser_nor_numpy(line: str, tmp_path: Path) -> None:
    words = line.split(" ")
    done = forebay(
        tmp_path, _FOREBAY_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    assert (done.code, done.heavy) == (0, [])
    assert done.out.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_that_is_known_without_a_command_is_the_commands_own(name: str) -> None:
    own = load(name).help
    assert own is not None
    assert COMMANDS[name].help == " ".join(own.split("\n\n")[0].split())


def test_a_command_that_is_nearly_right_gets_a_suggestion(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "shw"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "Did you mean" in done.stderr
    assert "show" in done.stderr
