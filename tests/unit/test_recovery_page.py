"""The page about errors and recovery: each row is shown by tests that exist."""

from __future__ import annotations

import re

from documents import ROOT

from forebay.catalog import QueryState
from forebay.errors import all_errors

PAGE = (ROOT / "docs" / "errors-and-recovery.md").read_text()


def test_each_row_names_tests_that_are_there() -> None:
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`test_" in line]
    assert len(rows) >= 20
    assert {name for row in rows for name in re.findall(r"`(test_\w+)`", row)} <= known


def test_it_has_every_state_and_codes_that_exist() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(QueryState)
    named = re.findall(r"`(\w+Error)` \((FB\d{4})", PAGE)
    assert named
    assert all(all_errors()[code].__name__ == name for name, code in named)
