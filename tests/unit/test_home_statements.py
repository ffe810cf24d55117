"""What a home answers by itself: SELECT, SHOW, DESCRIBE and EXPLAIN, and the errors that people know from a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from homes import finished_view

from forebay.errors import StatementError, UnknownObjectError
from forebay.runtime.home import Home
from forebay.sql import parse_one

NESTED = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.string()))])
BARS = pa.table(
    {
        "symbol": ["b", "a"],
        "volume": [1, 2],
        "low": pa.array([None, None], pa.decimal128(12, 2)),
        "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "more": pa.array([None, None], NESTED),
        "tags": pa.array([None, None], pa.map_(pa.string(), pa.int32())),
    }
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    finished_view(tmp_path, "bars", BARS)
    with Home(tmp_path) as found:
        yield found


def run(home: Home, statement: str) -> Any:
    return home.run(parse_one(statement))


def test_a_select_over_a_finished_view(home: Home) -> None:
    found = run(home, "SELECT symbol, volume FROM bars ORDER BY volume DESC LIMIT 1")
    assert found.fetchall() == [("a", 2)]
    assert run(home, "SELECT count(*) FROM forebay_catalog.source_errors").rows() == [{"count(1)": 0}]
    assert run(home, "SELECT id FROM forebay_catalog.dead_letters").fetchall() == []


def test_a_view_is_described_and_shown(home: Home) -> None:
    described = run(home, "DESCRIBE VIEW bars")
    assert described.fetchall() == [
        ("symbol", "STRING"),
        ("volume", "BIGINT"),
        ("low", "DECIMAL(12,2)"),
        ("at", "TIMESTAMP"),
        ("more", "STRUCT<a: BIGINT NOT NULL, b: ARRAY<STRING>>"),
        ("tags", "MAP<STRING, INT>"),
    ]
    assert "Emit: append" in described.notes
    assert "state: stopped" in run(home, "DESCRIBE EXTENDED VIEW bars").notes
    assert [row["name"] for row in run(home, "SHOW VIEWS").rows()] == ["bars"]
    assert run(home, "SHOW CREATE VIEW bars").fetchall()[0][0].startswith("CREATE MATERIALIZED VIEW bars")


def test_explain_says_who_answers_and_what_is_read(home: Home) -> None:
    steps = dict(run(home, "EXPLAIN SELECT symbol FROM bars WHERE volume > 1").fetchall())
    assert steps["answered by"] == "Arrow, in this process"
    assert steps["reads"].startswith("bars, version 0: 1 files, ")
    assert steps["columns"] == "symbol, volume"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT upper(symbol) FROM bars",
        "SELECT nope FROM bars",
        "SELECT * FROM bars JOIN nope ON true",
        "EXPLAIN SELECT upper(symbol) FROM bars",
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1 FROM bars",
        "DROP MATERIALIZED VIEW bars",
        "DESCRIBE SOURCE bars",
        "CREATE SOURCE s (id BIGINT) FROM DATAGEN ()",
    ],
)
def test_what_it_cannot_do_is_left_to_a_session(home: Home, statement: str) -> None:
    assert run(home, statement) is None


@pytest.mark.parametrize(
    ("statement", "message", "remedy"),
    [
        ("SELECT * FROM bar", "there is no view or source 'bar'", "did you mean 'bars'?"),
        ("SELECT * FROM forebay_catalog.x", "there is no table 'forebay_catalog.x'", "in forebay_catalog, there are: dead_letters"),
        ("SELECT * FROM forebay_catalog.event", "there is no table 'forebay_catalog.event'", "did you mean 'events'?"),
        ("DESCRIBE VIEW bar", "there is no view 'bar'", "did you mean 'bars'?"),
        ("SHOW CREATE VIEW bar", "there is no view 'bar'", "did you mean 'bars'?"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_an_error_at_its_statement(
    home: Home, statement: str, message: str, remedy: str
) -> None:
    with pytest.raises(UnknownObjectError) as failed:
        run(home, statement)
    assert isinstance(failed.value, StatementError)
    assert failed.value.message == message
    assert remedy in failed.value.remedy
    assert f"1 | {statement}" in str(failed.value)


def test_a_view_is_followed(home: Home) -> None:
    with home.subscribe("bars", timeout=0) as changes:
        assert sum(batch.num_rows for batch in changes) == 2
    with pytest.raises(UnknownObjectError):
        home.subscribe("bar")
