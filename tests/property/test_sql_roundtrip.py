"""Any source that can be described can be printed and read back; no text breaks the parser."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some
from sqlglot import exp
from sqlglot.errors import SqlglotError

from forebay import column_types
from forebay.errors import StatementError
from forebay.sql import (
    Column,
    CreateSource,
    CreateView,
    Forebay,
    OnError,
    OptionValue,
    Select,
    Watermark,
    parse,
    parse_one,
    plan,
    plan_select,
    to_sql,
)
from forebay.sql.quotes import is_double_quoted
from forebay.sql.stored import ForebayBefore, in_standard_quotes
from forebay.sql.text import identifier, string

text = some.text(some.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
plain = some.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
names = some.one_of(
    plain,
    some.sampled_from(["table", "from", "timestamp", "if", "end", "a b", "tick`s", "größe", "1a", "a-b"]),
)
values = some.builds(OptionValue, text)
types = some.recursive(
    some.sampled_from(
        [
            *(
                column_types.BOOLEAN,
                column_types.TINYINT,
                column_types.SMALLINT,
                column_types.INT,
                column_types.BIGINT,
            ),
            *(column_types.FLOAT, column_types.DOUBLE, pa.decimal128(10, 2), pa.decimal128(38, 38)),
            *(column_types.STRING, column_types.BINARY, column_types.DATE),
            *(column_types.TIMESTAMP, column_types.TIMESTAMP_NTZ),
        ]
    ),
    lambda inner: some.one_of(
        inner.map(column_types.array_of),
        some.builds(column_types.map_of, inner, inner),
        some.lists(
            some.tuples(names, inner, some.booleans()),
            min_size=1,
            max_size=3,
            unique_by=lambda f: f[0].lower(),
        ).map(lambda fields: pa.struct([pa.field(*field) for field in fields])),
    ),
    max_leaves=5,
)
keys = some.one_of(
    some.sampled_from(
        [
            "topic",
            "format",
            "group.id",
            "csv.delimiter",
            "schema.registry.url",
            "schema.registry.",
            "json.x_y",
        ]
    ),
    text.filter(lambda key: bool(key.strip()) and key not in ("connector", "brokers")),
)
options = some.dictionaries(keys, values, max_size=5)
policies = some.builds(
    OnError,
    some.sampled_from(["skip", "dead_letter", "fail"]),
    some.dictionaries(some.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True), values, max_size=3),
)


@some.composite
def sources(draw: some.DrawFn) -> CreateSource:
    found = draw(some.lists(names, max_size=4, unique_by=str.lower))
    columns = tuple(Column(name, draw(types), draw(some.booleans())) for name in found)
    delays = some.none() | some.integers(0, 10**9)
    watermark = (
        Watermark.of(draw(some.sampled_from(found)), draw(delays))
        if found and draw(some.booleans())
        else None
    )
    parts = some.sampled_from(["key", "partition", "offset", "timestamp", "headers"])
    free = names.filter(lambda name: name.lower() not in {column.lower() for column in found})
    pairs = some.tuples(parts, free)
    included = draw(some.lists(pairs, max_size=3, unique_by=(lambda p: p[0], lambda p: p[1].lower())))
    replace, exists = draw(some.sampled_from([(False, False), (True, False), (False, True)]))
    return CreateSource(
        name=draw(names),
        columns=columns,
        watermark=watermark,
        connector=draw(some.sampled_from(["kafka", "datagen"])),
        options=draw(options) | {f"include.{part}.as": OptionValue(name) for part, name in included},
        on_error=draw(some.none() | policies),
        if_not_exists=exists,
        or_replace=replace,
        spelling=draw(some.sampled_from(["with", "from"])),
    )


@given(sources())
def test_a_source_survives_printing_and_parsing(source: CreateSource) -> None:
    assert parse_one(to_sql(source)) == source


in_quotes = some.text(
    some.characters(codec="utf-8", exclude_characters="\x00`\n\r"), min_size=1, max_size=8
).map(lambda name: '"' + name.replace('"', '""') + '"')
columns = some.one_of(
    in_quotes, names.map(identifier), some.sampled_from(["a", '"userId"', '"USERID"', "`x y`"])
)


@given(columns, columns, columns, text.map(string))
def test_names_in_any_quotes_survive_printing_and_parsing(
    one: str, two: str, table: str, literal: str
) -> None:
    """As kept, no name stands in double quotes: one that does was kept when that was text."""
    query = f"SELECT {one}, t.{two} AS {one}, {literal} AS s FROM {table} AS t WHERE {two} = {literal} GROUP BY {one}"
    for written in (f"CREATE MATERIALIZED VIEW {table} AS {query}", query, f"DROP SOURCE {table}"):
        statement = parse_one(written)
        printed = to_sql(statement)
        assert parse_one(printed) == statement
        assert to_sql(parse_one(printed)) == printed
        assert in_standard_quotes(printed) == printed
    select = parse_one(query)
    assert isinstance(select, Select)
    given_to_spark = plan_select(select.query)
    assert not any(is_double_quoted(token, given_to_spark) for token in Forebay().tokenize(given_to_spark))
    named = [column.name for column in select.query.find_all(exp.Column)]
    assert sorted(named) == sorted(Forebay().tokenize(name)[0].text for name in (one, two, two, one))


_PIECES = some.lists(
    some.sampled_from(["a", '\\"', '""', "\\\\", "'", "\\n", " ", "\\'", "é"]), max_size=6
).map("".join)


@given(_PIECES, some.sampled_from(["", "r", "R"]))
def test_text_in_double_quotes_that_was_kept_is_the_same_text_in_single_quotes(
    inside: str, prefix: str
) -> None:
    if prefix:
        inside = inside.replace('"', "")
    kept = f'SELECT {prefix}"{inside}" AS a FROM t'
    try:
        before = ForebayBefore().parse(kept)[0]
    except SqlglotError:
        return
    now = in_standard_quotes(kept)
    assert in_standard_quotes(now) == now
    assert before is not None
    wanted, found = before.args["query"].selects[0].this, parse_one(now).query.selects[0].this
    assert found.this == wanted.this


VOCABULARY = """CREATE OR REPLACE SOURCE TABLE MATERIALIZED VIEW IF NOT EXISTS t a ts ( ) , ; . = - ' " ` /* */ --
WITH FROM KAFKA FORMAT JSON INCLUDE KEY USING SCHEMA REGISTRY ON ERROR skip WATERMARK FOR AS INTERVAL '5' SECOND BIGINT < > :
ARRAY STRUCT DECIMAL SELECT count(*) TUMBLE HOP SESSION GROUP BY ORDER LIMIT UNION ALL JOIN EMIT CHANGES WINDOW
REPLAY DISCARD REOPEN RECOVER DEAD LETTERS WHERE TO PATCH REASON DRY RUN CLOSE DROP SHOW DESCRIBE EXPLAIN SUBSCRIBE 'x' 'connector' 1 1.5 true NULL * + CASE WHEN END OVER LATERAL
DESCRIPTOR(ts) TUMBLE( TABLE( window_start window_end "a" "T" PARTITION WITHIN FOR SYSTEM_TIME METADATA PRIMARY ENCODE"""
WORDS = some.sampled_from([*VOCABULARY.split(), "\n"])
QUERIES = some.lists(WORDS, max_size=20).map(
    lambda words: "CREATE MATERIALIZED VIEW v AS SELECT a " + " ".join(words)
)
GROUPS = some.lists(WORDS, max_size=10).map(
    lambda words: (
        "CREATE MATERIALIZED VIEW v AS SELECT window_start, a FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) "
        f"{' '.join(words)} GROUP BY window_start, window_end, a"
    )
)
LETTERS = some.lists(WORDS, max_size=12).map(lambda words: "REPLAY DEAD LETTERS FROM t " + " ".join(words))


@given(
    some.one_of(
        some.text(max_size=60), some.lists(WORDS, max_size=25).map(" ".join), QUERIES, GROUPS, LETTERS
    )
)
def test_no_text_raises_anything_but_a_statement_error(script: str) -> None:
    try:
        for statement in parse(script):
            assert parse_one(to_sql(statement)) == statement
            if isinstance(statement, CreateView):
                plan(statement.query, statement.emit, {"t": "u"})
    except StatementError:
        return
