"""Functions that are misspelled are found before Spark is asked; what may be a function of somebody's is not touched."""

from __future__ import annotations

import pytest

from forebay import sql
from forebay.errors import Position


def found(text: str):  # type: ignore[no-untyped-def]
    statement = sql.parse(text)[-1]
    assert isinstance(statement, sql.Select | sql.CreateView)
    return sql.misspelled_function(statement.query)


@pytest.mark.parametrize(
    ("text", "name", "meant", "column"),
    [
        ("SELECT coutn(*) FROM s", "coutn", "count", 8),
        ("SELECT tumble_strat(ts, INTERVAL '1' MINUTE) FROM s", "tumble_strat", "tumble_start", 8),
        ("SELECT a AS lenght FROM s WHERE lenght(a) > 1", "lenght", "length", 33),
        ("CREATE MATERIALIZED VIEW v AS SELECT a, Cuont(b) AS n FROM s GROUP BY a", "Cuont", "count", 41),
    ],
)
def test_the_caret_is_at_the_function_and_the_remedy_names_the_one_that_was_meant(
    text: str, name: str, meant: str, column: int
) -> None:
    error = found(text)
    assert error is not None
    assert error.message == f"there is no function '{name}'"
    assert error.remedy == f"did you mean {meant}?"
    assert error.position == Position(1, column, len(name))


def test_it_is_found_in_the_second_statement_of_a_script() -> None:
    error = found("SHOW SOURCES;\nSELECT\n  coutn(*)\nFROM s")
    assert error is not None
    assert error.position == Position(3, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT my_own_function(a) FROM s",
        "SELECT try_to_number(a, '9'), listagg(b), mode(c) FROM s",
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "SELECT mine.coutn(a) FROM s",
    ],
)
def test_functions_of_spark_and_those_that_resemble_none_are_not_refused(text: str) -> None:
    assert found(text) is None
