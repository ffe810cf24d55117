"""Functions and columns that Spark does not know: the error is at the name, and says which one was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from sessions import connect

from forebay import Session
from forebay.errors import Position, UnsupportedSqlError
from forebay.sql.functions import SPARK


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connect(tmp_path_factory.mktemp("names") / "home") as session:
        session.execute(
            "CREATE SOURCE ticks (id BIGINT, price DOUBLE, ts TIMESTAMP) FROM DATAGEN (rows_per_second = 1)"
        )
        session.spark.udf.register("in_cents", lambda price: None)
        yield session


def test_the_list_of_functions_is_that_of_the_spark_in_use(db: Session) -> None:
    shown = [row[0] for row in db.spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    assert {name for name in shown if re.fullmatch(r"\w+", name)} == SPARK


CASES = [
    ("SELECT coutn(*) FROM ticks", "function 'coutn'", "did you mean count?", (8, 5)),
    ("SELECT tumble_strat(ts) FROM ticks", "function 'tumble_strat'", "did you mean tumble_start?", (8, 12)),
    ("SELECT in_cnets(price) FROM ticks", "function 'in_cnets'", "did you mean in_cents?", (8, 8)),
    ("SELECT * FROM explod(array(1))", "function 'explod'", "did you mean explode?", (15, 6)),
    ("SELECT zzz(price) FROM ticks", "function 'zzz'", "session.spark.udf.register", (8, 3)),
    ("SELECT prise FROM ticks", "column 'prise'", "did you mean price?", (8, 5)),
    ("SELECT t.prise FROM ticks t", "column 't.prise'", "did you mean price?", (8, 7)),
    ("SELECT ticks.id FROM ticks t", "column 'ticks.id'", "did you mean t.id?", (8, 8)),
    ("SELECT id AS qty FROM ticks WHERE qty > 1", "column 'qty'", "there are: ", (35, 3)),
    ('SELECT "prise" FROM ticks', "column 'prise'", "text stands in single quotes", (8, 7)),
]


@pytest.mark.parametrize(("query", "what", "remedy", "place"), CASES)
def test_a_query_with_an_unknown_name(
    db: Session, query: str, what: str, remedy: str, place: tuple[int, int]
) -> None:
    with pytest.raises(UnsupportedSqlError, match=f"there is no {what}") as caught:
        db.sql(query)
    assert remedy in caught.value.remedy
    assert caught.value.position == Position(1, *place)


@pytest.mark.parametrize(
    ("query", "what", "remedy"),
    [
        ("SELECT id, coutn(price) AS n FROM ticks GROUP BY id", "function 'coutn'", "count"),
        ("SELECT id, count(prise) AS n FROM ticks GROUP BY id", "column 'prise'", "price"),
        ("SELECT ticks.prise FROM ticks", "column 'ticks.prise'", "price"),
    ],
)
def test_a_view_with_an_unknown_name(db: Session, query: str, what: str, remedy: str) -> None:
    create = "CREATE MATERIALIZED VIEW v AS\n"
    with pytest.raises(UnsupportedSqlError, match=f"there is no {what}") as caught:
        db.sql(create + query)
    assert caught.value.remedy == f"did you mean {remedy}?"
    name = what.split("'")[1]
    assert caught.value.position == Position(2, query.index(name) + 1, len(name))


def test_a_function_that_was_registered_is_called(db: Session) -> None:
    assert db.sql("SELECT in_cents(1.5) AS c").fetchall() == [(None,)]
