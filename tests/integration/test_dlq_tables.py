"""Dead letters and error counts as tables, and the statements about letters, through a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import inside
import letters as make
import pytest
from letters import BINARY, BROKEN, GOOD, NO_ID, TEXT_PRICE, Case
from sessions import connect, create_source, name, rows
from support import Cluster

import forebay
from forebay import errors
from forebay.catalog import Catalog


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    with connect(tmp_path_factory.mktemp("tables") / "home") as made:
        yield made


@pytest.fixture
def case(session: forebay.Session, cluster: Cluster) -> Case:
    made = make.case(cluster)
    session.execute(made.statement())
    return made


def test_letters_are_a_table(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, GOOD, NO_ID, BINARY], key=b"k", headers=[("h", b"\x01")])
    found = session.sql(
        f"SELECT * FROM forebay_catalog.dead_letters WHERE source = '{case.source}' ORDER BY offset"
    ).rows()
    assert [(row["topic"], row["offset"], row["error_kind"], row["state"]) for row in found] == [
        (case.topic, 0, "MalformedPayload", "open"),
        (case.topic, 2, "SchemaMismatch", "open"),
        (case.topic, 3, "MalformedPayload", "open"),
    ]
    assert [(row["key"], row["value"], row["value_bytes"]) for row in found] == [
        ("k", BROKEN.decode(), BROKEN),
        ("k", NO_ID.decode(), NO_ID),
        ("k", None, BINARY),
    ]
    assert dict(found[0]["headers"]) == {"h": b"\x01"}
    assert all(row["timestamp"] is not None and row["complete"] for row in found)


def test_letters_can_be_grouped_joined_and_filtered(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID, NO_ID])
    grouped = f"""
        SELECT d.error_kind, count(*) AS n, max(e.source_name)
        FROM forebay_catalog.dead_letters AS d
        JOIN laminar_catalog.source_errors AS e ON e.source_name = d.source
        WHERE d.source = '{case.source}' AND forebay_catalog.dead_letters.state = 'open'
        GROUP BY d.error_kind ORDER BY n
    """.replace("forebay_catalog.dead_letters.state", "d.state")
    assert rows(session, grouped) == [
        ("MalformedPayload", 1, case.source),
        ("SchemaMismatch", 2, case.source),
    ]
    qualified = f"""SELECT forebay_catalog.dead_letters.offset FROM forebay_catalog.dead_letters
        WHERE dead_letters.source = '{case.source}' AND error_kind = 'MalformedPayload'"""
    assert len(rows(session, qualified)) == 1


def test_a_state_is_in_the_table_once_it_is_decided(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN, NO_ID, TEXT_PRICE])
    session.sql(
        f"DISCARD DEAD LETTERS FROM {case.source} WHERE error_kind = 'MalformedPayload' REASON 'junk'"
    )
    done = session.sql(
        f"REPLAY DEAD LETTERS FROM {case.source} WHERE error_kind = 'TypeConversion' PATCH '{{\"price\": 1}}'"
    )
    assert done.rows()[0]["sent"] == 1
    found = rows(
        session,
        f"SELECT error_kind, state, state_reason, replayed_to IS NOT NULL FROM forebay_catalog.dead_letters "
        f"WHERE source = '{case.source}' ORDER BY 1",
    )
    assert found == [
        ("MalformedPayload", "discarded", "junk", False),
        ("SchemaMismatch", "open", None, False),
        ("TypeConversion", "replayed", None, True),
    ]


def test_replay_in_sql_goes_to_a_topic_and_runs_dry(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN])
    other = case.cluster.make_topic(1)
    dry = session.sql(f"REPLAY DEAD LETTERS FROM {case.source} TO '{other}' DRY RUN")
    assert (dry.rows()[0]["sent"], dry.rows()[0]["dry_run"], "would be sent" in dry.notes[0]) == (
        1,
        True,
        True,
    )
    assert case.cluster.records(other) == []
    assert session.sql(f"REPLAY DEAD LETTERS FROM {case.source} TO '{other}'").rows()[0]["sent"] == 1
    assert [message.value() for message in case.cluster.records(other)] == [BROKEN]


def test_errors_of_statements_show_their_place(session: forebay.Session, case: Case) -> None:
    with pytest.raises(errors.UnknownObjectError) as wrong:
        session.sql(f"REPLAY DEAD LETTERS FROM {case.source}\nWHERE eror_kind = 'x'")
    assert (wrong.value.position.line, wrong.value.position.column) == (2, 7)  # type: ignore[union-attr]
    assert "did you mean error_kind?" in str(wrong.value)
    with pytest.raises(errors.UnknownObjectError, match="there is no source 'nowhere'"):
        session.sql("REPLAY DEAD LETTERS FROM nowhere")
    with pytest.raises(errors.UnknownObjectError, match=r"there is no table 'forebay_catalog.dead_leters'"):
        session.sql("SELECT * FROM forebay_catalog.dead_leters")
    with pytest.raises(errors.UnsupportedSqlError, match="expected an integer"):
        session.sql(f"DISCARD DEAD LETTERS FROM {case.source} WHERE partition = 'three'")


def test_a_source_without_letters_has_none_and_one_that_writes_none_says_so(
    session: forebay.Session, case: Case
) -> None:
    assert list(session.dead_letters(case.source)) == []
    assert session.sql(f"REPLAY DEAD LETTERS FROM {case.source}").rows()[0]["sent"] == 0
    other = name("skips")
    session.execute(create_source(case.cluster, other, case.topic, make.COLUMNS))
    with pytest.raises(errors.UnsupportedSqlError, match="writes no dead letters") as refused:
        session.dead_letters(other)
    assert "ALTER SOURCE" in refused.value.remedy
    assert other in {row[0] for row in rows(session, "SELECT source_name FROM forebay_catalog.source_errors")}


def test_a_dead_letter_topic_that_is_not_there_yet_has_no_letters(
    session: forebay.Session, cluster: Cluster
) -> None:
    source = name("early")
    topic = cluster.make_topic(1)
    session.execute(
        f"{create_source(cluster, source, topic, make.COLUMNS)} "
        f"ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{source}-dlq')"
    )
    assert list(session.dead_letters(source)) == []


def test_records_that_are_no_letters_are_counted_and_left_out(session: forebay.Session, case: Case) -> None:
    case.fail(session, [BROKEN])
    case.cluster.produce(case.dlq, [b"hello"], headers=[("forebay.headers", b"99")])
    case.cluster.produce(case.dlq, [b"hello"])
    reader = inside.reader_of(session.dead_letters(case.source))
    assert len(list(reader.entries())) == 1
    assert reader.strangers == 2


def test_a_source_that_is_not_asked_for_is_not_read(
    session: forebay.Session, case: Case, cluster: Cluster
) -> None:
    """Whose dead-letter brokers are away, for example."""
    case.fail(session, [BROKEN])
    other = name("away")
    topic = cluster.make_topic(1)
    session.execute(
        create_source(cluster, other, topic, make.COLUMNS)
        + " "
        + case.statement().partition(" FORMAT JSON ")[2]
    )
    catalog = Catalog(session.home / "catalog.db")
    definition = catalog.get(other)
    assert definition is not None
    away = definition.sql.replace(
        f"dead_letter_topic = '{case.dlq}'",
        f"dead_letter_topic = '{case.dlq}', dead_letter_brokers = '127.0.0.1:1'",
    )
    assert away != definition.sql
    catalog.put(replace(definition, sql=away))
    try:
        asked = f"SELECT count(*) FROM forebay_catalog.dead_letters AS d WHERE d.source = '{case.source}'"
        assert rows(session, asked) == [(1,)]
        with pytest.raises(errors.UnreachableError):
            session.sql("SELECT count(*) FROM forebay_catalog.dead_letters").arrow()
    finally:
        session.sql(f"DROP SOURCE {other}")
