"""What the parser promises: the fixtures of tests/sql, and the meaning of each clause."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from forebay import column_types as types
from forebay.errors import Position, SqlSyntaxError, StatementError, UnsupportedSqlError
from forebay.masking import masked
from forebay.sql import (
    CreateSource,
    CreateView,
    Describe,
    Drop,
    Explain,
    OnError,
    OptionValue,
    Select,
    Show,
    Subscribe,
    Watermark,
    parse,
    parse_one,
    to_sql,
    type_name,
)

FIXTURES = Path(__file__).parent.parent / "sql"
IDENTITY = (FIXTURES / "identity.sql").read_text(encoding="utf-8").splitlines()
ERRORS = [
    [part.strip() for part in line.split("⇒")]
    for line in (FIXTURES / "errors.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def source(text: str) -> CreateSource:
    statement = parse_one(text)
    assert isinstance(statement, CreateSource)
    return statement


def texts(options: object) -> dict[str, str]:
    assert isinstance(options, dict)
    return {key: value.text for key, value in options.items()}


@pytest.mark.parametrize("line", IDENTITY)
def test_printing_a_statement_and_parsing_it_again_changes_nothing(line: str) -> None:
    statement = parse_one(line)
    printed = to_sql(statement)
    again = parse_one(printed)
    assert again == statement
    assert to_sql(again) == printed


@pytest.mark.parametrize(("text", "code", "place", "message", "remedy"), ERRORS)
def test_a_wrong_statement_is_refused_at_its_place_with_a_way_out(
    text: str, code: str, place: str, message: str, remedy: str
) -> None:
    text = text.replace("\\n", "\n")
    with pytest.raises(StatementError) as caught:
        parse(text)
    error = caught.value
    assert error.position is not None
    assert error.code == code
    assert f"{error.position.line}:{error.position.column}" == place
    assert message in error.message
    assert remedy in error.remedy
    assert error.statement == masked(text)


def test_the_fixtures_are_many() -> None:
    assert len(IDENTITY) >= 80
    assert len(ERRORS) >= 40


def test_both_spellings_of_a_source_mean_the_same_options() -> None:
    left = source("CREATE SOURCE t (a INT) WITH ('connector'='kafka', 'bootstrap.servers'='b', format='csv', "
                  "'csv.delimiter'=';', 'schema.registry.url'='u', 'group.id'='g')")  # fmt: skip
    right = source("CREATE SOURCE t (a INT) FROM KAFKA (brokers = 'b', group_id = 'g') "
                   "FORMAT CSV (delimiter = ';') USING SCHEMA REGISTRY (url = 'u')")  # fmt: skip
    assert left.options == right.options
    assert left.connector == right.connector == "kafka"
    assert (left.spelling, right.spelling) == ("with", "from")


def test_values_are_kept_as_text_and_know_their_place() -> None:
    found = source(
        "CREATE SOURCE t WITH (connector='kafka',\n  'max.poll.records' = 5000, x = true, y = -1.5)"
    )
    assert texts(found.options) == {"max.poll.records": "5000", "x": "true", "y": "-1.5"}
    assert found.options["max.poll.records"].position == Position(2, 3, 25)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("group_id", "group.id"),
        ("GROUP_ID", "group.id"),
        ("group.id", "group.id"),
        ("'group.id'", "group.id"),
        ("'group_id'", "group_id"),
        ("`group.id`", "group.id"),
        ("brokers", "bootstrap.servers"),
        ("'brokers'", "bootstrap.servers"),
        ("'Odd-Key'", "Odd-Key"),
    ],
)
def test_a_bare_key_has_dots_for_underscores_and_a_quoted_one_is_verbatim(written: str, key: str) -> None:
    assert list(source(f"CREATE SOURCE t FROM KAFKA ({written} = 'x')").options) == [key]


@pytest.mark.parametrize("written", ["DEBEZIUM-JSON", "DEBEZIUM_JSON", "'debezium-json'", "debezium_json"])
def test_a_format_has_one_name_however_it_is_written(written: str) -> None:
    assert texts(source(f"CREATE SOURCE t FROM KAFKA () FORMAT {written}").options) == {
        "format": "debezium-json"
    }


def test_on_error_options_keep_their_underscores() -> None:
    clause = "ON ERROR = 'dead_letter' WITH ('dead.letter.topic' = 'x', max_errors_per_second = 100)"
    expected = OnError(
        "dead_letter", {"dead_letter_topic": OptionValue("x"), "max_errors_per_second": OptionValue("100")}
    )
    assert source(f"CREATE SOURCE t FROM KAFKA (topic = 't') {clause}").on_error == expected
    assert source(f"CREATE SOURCE t WITH (connector = 'kafka') {clause}").on_error == expected


@pytest.mark.parametrize(
    ("written", "delay", "text"),
    [
        ("", None, "ts"),
        ("AS ts", 0, "ts"),
        ("AS ts - INTERVAL '5' SECOND", 5_000, "ts - INTERVAL '5' SECOND"),
        ("AS ts - INTERVAL 5 MINUTES 30 SECONDS", 330_000, "ts - INTERVAL '330' SECOND"),
        ("AS ts - INTERVAL '250' MILLISECONDS", 250, "ts - INTERVAL '250' MILLISECOND"),
        ("AS ts - INTERVAL '1' WEEK", 604_800_000, "ts - INTERVAL '7' DAY"),
    ],
)
def test_a_watermark_is_a_delay_in_milliseconds(written: str, delay: int | None, text: str) -> None:
    found = source(f"CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts {written}) WITH (connector = 'kafka')")
    assert found.watermark == Watermark("ts", delay, text)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("LONG", "BIGINT"),
        ("INTEGER", "INT"),
        ("REAL", "FLOAT"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("NUMERIC", "DECIMAL(10,0)"),
        ("DECIMAL(5)", "DECIMAL(5,0)"),
        ("VARCHAR", "STRING"),
        ("CHAR", "STRING"),
        ("CHARACTER VARYING", "STRING"),
        ("TEXT", "STRING"),
        ("BYTES", "BINARY"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"),
        ("timestamp(3) without time zone", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ"),
        *((f"TIMESTAMP({digits})", "TIMESTAMP") for digits in range(7)),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
        ("ARRAY<TIMESTAMP WITHOUT TIME ZONE>", "ARRAY<TIMESTAMP_NTZ>"),
        ("STRUCT<a: TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL>", "STRUCT<a: TIMESTAMP_NTZ NOT NULL>"),
        ("INT[]", "ARRAY<INT>"),
        ("MAP<STRING,ARRAY<BYTES>>", "MAP<STRING, ARRAY<BINARY>>"),
        ("STRUCT<a: LONG NOT NULL, b STRING>", "STRUCT<a: BIGINT NOT NULL, b: STRING>"),
    ],
)
def test_a_type_prints_as_its_canonical_name(written: str, expected: str) -> None:
    column = source(f"CREATE SOURCE t (a {written}) WITH (connector = 'kafka')").columns[0]
    assert type_name(column.type) == expected


@pytest.mark.parametrize(
    ("written", "message", "remedy"),
    [
        ("UUID", "type UUID is not supported", "declare it as STRING"),
        ("ARRAY<UUID>", "type UUID is not supported", "declare it as STRING"),
        ("MAP<STRING, JSONB>", "type JSONB is not supported", "declare it as STRING"),
        ("TIME(3)", "type TIME(3) is not supported", "declare it as STRING"),
        ("DATETIME", "type DATETIME is not supported", "declare it as TIMESTAMP"),
        *((f"TIMESTAMP({n})", f"type TIMESTAMP({n}) is not supported", "TIMESTAMP(6) or TIMESTAMP") for n in (7, 8, 9)),
        ("TIMESTAMP_LTZ(9)", "type TIMESTAMP_LTZ(9) is not supported", "TIMESTAMP(6) or TIMESTAMP"),
        ("timestamp(7) without time zone", "type timestamp(7) without time zone is", "TIMESTAMP(6) or TIMESTAMP"),
        ("VARCHAR(20)", "type VARCHAR(20) is not supported: the length of a value is not checked", "declare it as STRING"),
        ("CHARACTER VARYING(9)", "type CHARACTER VARYING(9) is not supported", "declare it as STRING"),
        ("CHAR(3)", "type CHAR(3) is not supported", "declare it as STRING"),
        ("STRUCT<a: VARBINARY(3)>", "type VARBINARY(3) is not supported", "declare it as BINARY"),
        ("INT(11)", "type INT(11) is not supported", "declare it as INT"),
        ("ENUM('a', 'b')", "type ENUM is not supported", "declare it as STRING"),
        ("ROW<a INT>", "there is no type 'ROW'", "declare it as STRUCT<name: TYPE, …>"),
        ("ARRAY<ROW(a INT)>", "there is no type 'ROW'", "declare it as STRUCT<name: TYPE, …>"),
        ("STRUCT<a: ROW<b INT>>", "there is no type 'ROW'", "declare it as STRUCT<name: TYPE, …>"),
        ("MULTISET<INT>", "there is no type 'MULTISET'", "declare it as ARRAY<TYPE>"),
        ("INT8", "there is no type 'INT8'", "declare it as BIGINT (eight bytes) or TINYINT (eight bits)"),
        ("BIGINT UNSIGNED", "type BIGINT UNSIGNED is not supported", "DECIMAL(20, 0)"),
        ("FOO(3)", "there is no type 'FOO'", "supported are BOOLEAN"),
    ],
)  # fmt: skip
def test_a_type_that_is_refused_is_named_as_it_was_written(written: str, message: str, remedy: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        parse_one(f"CREATE SOURCE t (a {written}) WITH (connector = 'kafka')")
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.position is not None


def test_columns_carry_spark_types_and_nullability() -> None:
    columns = source("CREATE SOURCE t (a BIGINT NOT NULL, b TINYINT) WITH (connector = 'kafka')").columns
    assert [(c.name, c.type, c.nullable) for c in columns] == [
        ("a", types.BIGINT, False),
        ("b", types.TINYINT, True),
    ]


def test_positions_and_text_are_those_of_the_whole_script() -> None:
    script = "-- first\nSHOW SOURCES;\n\n  SELECT 1 -- one\n  ;;\nDROP SOURCE t\n"
    shown, select, drop = parse(script)
    assert shown == Show("sources")
    assert isinstance(select, Select)
    assert select.text == "SELECT 1"
    assert select.position == Position(4, 3, 8)
    assert drop.position == Position(6, 1, 13)
    assert drop == Drop("source", "t")


def test_a_line_is_what_the_error_draws_as_a_line() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse("SHOW SOURCES;\r\n/* \x0b */ SHOW SORCES")
    assert "3 |  */ SHOW SORCES\n    |          ^^^^^^" in str(caught.value)


def test_emit_is_no_alias() -> None:
    statement = parse_one("CREATE MATERIALIZED VIEW v AS SELECT a FROM t EMIT CHANGES")
    assert isinstance(statement, CreateView)
    assert statement.emit == "changes"
    assert statement.query == sqlglot.parse_one("SELECT a FROM t", dialect="forebay").args["query"]


def test_a_column_may_be_called_emit_or_changes() -> None:
    statement = parse_one("CREATE MATERIALIZED VIEW v AS SELECT emit, changes FROM t WHERE emit > changes")
    assert isinstance(statement, CreateView)
    assert statement.emit is None


def test_a_view_is_printed_with_the_query_as_it_was_written() -> None:
    query = "SELECT listagg(x), ts - INTERVAL 5 MINUTES 30 SECONDS AS t /* why */ FROM t"
    assert to_sql(parse_one(f"create materialized view v as {query} emit changes")) == (
        f"CREATE MATERIALIZED VIEW v AS\n{query}\nEMIT CHANGES"
    )


def test_secrets_are_masked_by_the_caller_under_their_full_key() -> None:
    statement = parse_one(
        "CREATE SOURCE t FROM KAFKA (topic = 't') USING SCHEMA REGISTRY (url = 'u', password = 'p')"
    )
    printed = to_sql(statement, lambda key, text: "***" if key == "schema.registry.password" else text)
    assert "password = '***'" in printed
    assert "url = 'u'" in printed


def test_pretty_printing_has_one_column_and_one_option_a_line() -> None:
    text = (
        "CREATE SOURCE t (a int not null, ts timestamp, watermark for ts as ts - interval '1' minute) "
        "FROM kafka (brokers='b', group_id='g') format csv (delimiter=';') on error = skip"
    )
    assert to_sql(parse_one(text)) == (
        "CREATE SOURCE t (\n  a INT NOT NULL,\n  ts TIMESTAMP,\n"
        "  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE\n) FROM KAFKA (\n"
        "  'bootstrap.servers' = 'b',\n  'group.id' = 'g'\n)\n"
        "FORMAT CSV (\n  delimiter = ';'\n)\nON ERROR = 'skip'"
    )


def test_the_small_statements_say_what_they_are_about() -> None:
    assert parse_one("DROP VIEW IF EXISTS v CASCADE") == Drop("view", "v", True, True)
    assert parse_one("DESC EXTENDED MATERIALIZED VIEW v") == Describe("view", "v", True)
    assert parse_one("SUBSCRIBE TO v;") == Subscribe("v")
    explained = parse_one("EXPLAIN SELECT 1")
    assert isinstance(explained, Explain)
    assert explained.statement.text == "SELECT 1"
    assert explained.statement.position == Position(1, 9, 8)


def test_parse_one_wants_exactly_one() -> None:
    with pytest.raises(SqlSyntaxError, match="no statement"):
        parse_one(" ; -- nothing\n")
    with pytest.raises(SqlSyntaxError, match="more than one"):
        parse_one("SHOW SOURCES; SHOW VIEWS")


def test_an_empty_script_has_no_statements() -> None:
    assert parse("") == parse("  -- nothing\n ;; /* here */ ;") == []


def test_deep_nesting_is_an_error_of_ours() -> None:
    with pytest.raises(SqlSyntaxError, match="nested too deeply"):
        parse("SELECT " + "(" * 5000)


def test_nothing_becomes_a_command_that_sqlglot_did_not_understand(caplog: pytest.LogCaptureFixture) -> None:
    for text in (
        "EXPLAIN VACUUM t",
        "CALL x()",
        "SET a = 1",
        "WITH x AS (SHOW TABLES) SELECT 1",
        "ADD JAR 'x'",
    ):
        with pytest.raises(StatementError):
            parse(text)
    assert not caplog.records


def test_include_is_options_under_another_name_and_is_printed_as_the_clause() -> None:
    written = source("CREATE SOURCE t (a INT) FROM KAFKA (topic = 't') INCLUDE KEY AS k, OFFSET")
    assert texts(written.options) == {"topic": "t", "include.key.as": "k", "include.offset.as": "_offset"}
    assert written.options["include.key.as"].position == Position(1, 58, 8)
    assert to_sql(written).splitlines()[-1] == "INCLUDE KEY AS k, OFFSET AS _offset"
