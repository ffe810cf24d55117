"""What the Python processes that Spark starts run first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from forebay import source

START = Path(source.__file__).with_name("start")
ZIP = Path(pyspark.__file__).with_name("python") / "lib" / "pyspark.zip"


def said(code: str, *path: Path, arguments: tuple[str, ...] = ()) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, check=True, capture_output=True, text=True
    )
    assert not done.stderr
    return done.stdout.strip()


def test_pyspark_is_taken_from_where_it_is_installed_and_not_compiled_anew_from_the_zip() -> None:
    where = "import importlib.util as u; print(u.find_spec('pyspark').origin)"
    assert str(ZIP) in said(where, ZIP)  # as Spark has it
    assert said(where, ZIP, START) == said(where, START, ZIP) == pyspark.__file__


def test_a_pyspark_that_is_only_in_a_zip_is_left_there(tmp_path: Path) -> None:
    other = tmp_path / "python" / "lib" / "pyspark.zip"
    other.parent.mkdir(parents=True)
    other.write_bytes(ZIP.read_bytes())
    assert str(other) in said(
        "import importlib.util as u; print(u.find_spec('pyspark').origin)", other, START
    )


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_customisation_of_the_interpreter_runs_too(tmp_path: Path, ours_first: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    path = (START, tmp_path) if ours_first else (tmp_path, START)
    assert said("", *path) == "theirs"


def test_the_folder_is_on_the_path_of_these_processes_only_for_finding_this(tmp_path: Path) -> None:
    assert str(START) not in said("import sys; print(sys.path)", START, tmp_path)


def test_a_process_that_plans_imports_nothing_that_decodes_reads_or_compiles() -> None:
    heavy = [
        "google.protobuf",
        "forebay.kafka.rows",
        "forebay.kafka.native_reader",
        "pandas",
        "sqlglot",
        "deltalake",
    ]
    code = f"import sys, forebay.source.datasource, forebay.kafka.connector; print([n for n in {heavy} if n in sys.modules])"
    assert said(code) == "[]"


def test_a_daemon_of_spark_imports_once_what_its_workers_need() -> None:
    """What stands behind the code of `-c` is what stands behind `-m` when Spark starts a daemon."""
    worker = "pyspark.sql.worker.create_data_source"
    told = f"import sys; print([n in sys.modules for n in ({worker!r}, 'forebay.kafka.connector')])"
    assert said(told, START, arguments=("pyspark.daemon", worker)) == "[True, True]"
    assert said(told, START) == "[False, False]"


@pytest.mark.parametrize(("error", "told"), [("BrokenPipeError", False), ("ValueError", True)])
def test_a_worker_that_spark_hung_up_on_prints_no_traceback(error: str, told: bool) -> None:
    code = f"import sys, traceback; sys.stderr = sys.stdout\ntry: raise {error}\nexcept Exception: traceback.print_exc()"
    assert (
        "Traceback" in said(code, START, arguments=("forebay.source.worker_daemon", "pyspark.worker"))
    ) is told
    assert "Traceback" in said(code, START)
