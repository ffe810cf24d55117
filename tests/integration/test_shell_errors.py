"""Whatever goes wrong is one of our errors: at the prompt, which comes back, and in Python."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from sessions import connect
from terminals import Terminal, terminal
from waiting import eventually

from forebay.errors import ForebayError, SelectFailedError
from forebay.runtime import spark as sparks

ENDLESS = "SELECT count(*) FROM range(100000000000) WHERE hash(id) = 17"


def test_the_prompt_comes_back_whatever_was_typed_and_views_keep_running(tmp_path: Path) -> None:
    with terminal(tmp_path / "home", "sql") as shell:
        shell.expect("Type help;")
        shell.type("CREATE SOURCE gen (n BIGINT) FROM DATAGEN (rows_per_second = 50);")
        shell.expect("source gen created")
        shell.type("CREATE MATERIALIZED VIEW v AS SELECT n FROM gen;")
        shell.expect("view v created", timeout=120)
        shell.type("SELECT 1/0;")
        shell.expect("[DIVIDE_BY_ZERO]", timeout=60)
        # What is expected is never what is typed, which the terminal shows, too.
        shell.type("SELECT raise_error(concat('of my', ' own'));")
        shell.expect("of my own", timeout=60)
        shell.expect("forebay>")
        shell.type(f"{ENDLESS};")
        shell.expect("…")
        eventually(lambda: interrupted(shell), "the query is broken off", timeout=90)
        shell.type("SHOW QUERIES;")
        shell.expect("running", timeout=60)
        shell.type("SELECT min(n), concat('still', ' there') AS word FROM v;")
        shell.expect("still there", timeout=120)
        shell.expect("1 row", timeout=60)
        shell.type("exit")
        assert shell.process.wait(60) == 0
    for noise in ("Traceback", "org.apache.spark", "py4j", "failed"):
        assert noise not in shell.all, shell.all


def interrupted(shell: Terminal) -> bool:
    os.kill(shell.process.pid, signal.SIGINT)
    return shell.shows("broken off", within=2)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1/0",
        "SELECT raise_error('x')",
        "SELECT no_such_function(1)",
        "SELECT CAST('x' AS INT)",
        "SELECT nothing FROM (SELECT 1 AS one)",
        "SELECT element_at(array(1), 5)",
    ],
)
def test_every_error_of_a_session_is_one_of_ours(tmp_path: Path, query: str) -> None:
    with connect(tmp_path / "home") as db:
        with pytest.raises(ForebayError) as caught:
            db.sql(query).arrow()
        assert "\n\tat " not in str(caught.value)
        assert db.sql("SELECT 1 AS one").fetchall() == [(1,)]


def test_what_spark_says_of_a_select_is_said_in_one_line(tmp_path: Path) -> None:
    with connect(tmp_path / "home") as db, pytest.raises(SelectFailedError) as caught:
        db.sql("SELECT 1/0").show()
    assert caught.value.message.startswith("Spark says: [DIVIDE_BY_ZERO] Division by zero.")
    assert "SQLSTATE" not in caught.value.message


def test_interrupts_mean_what_they_meant_before_spark_was_started(tmp_path: Path) -> None:
    connect(tmp_path / "home").close()
    assert sparks.is_running()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
