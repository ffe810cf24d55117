"""A statement that fails leaves nothing behind, says where it is wrong, and gives no secret away."""

from __future__ import annotations

from pathlib import Path

import inside
import pytest
from sessions import caught_up, create_source, events, name, notes, rows
from support import Cluster

from forebay.errors import (
    ForebayError,
    MissingOptionError,
    ObjectInUseError,
    OptionConflictError,
    OptionValueError,
    SqlSyntaxError,
    StatementError,
    UnknownObjectError,
    UnknownOptionError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedSqlError,
)
from forebay.runtime.session import Session


@pytest.fixture(scope="module")
def source(db: Session, cluster: Cluster) -> str:
    """A source without event time, and one with."""
    topic = cluster.make_topic(2, name=name("known_topic"))
    cluster.produce(topic, events(range(10)))
    db.execute(create_source(cluster, "events", topic))
    db.execute(create_source(cluster, "timeless", topic, "id BIGINT, k STRING, ts TIMESTAMP"))
    return topic


def snapshot(db: Session) -> tuple[list[object], set[Path]]:
    shown = [db.sql(f"SHOW {kind}").rows() for kind in ("SOURCES", "VIEWS", "QUERIES")]
    views = db.home / "views"
    return shown, set(views.rglob("*")) if views.exists() else set()


KAFKA = "CREATE SOURCE wrong (id BIGINT)\nFROM KAFKA (brokers = '{brokers}', topic = '{topic}'{more})\nFORMAT JSON"
SOURCES = {
    "unknown option": (", group_idd = 'g'", UnknownOptionError, "did you mean 'group.id'"),
    "bad value": (", max_poll_records = 'many'", OptionValueError, "max.poll.records"),
    "excluding": (", topics = 'a, b'", OptionConflictError, "topic"),
    "missing": (", startup_mode = 'timestamp'", MissingOptionError, "startup.timestamp.ms"),
    "client": (", 'kafka.no.such.setting' = '1'", OptionValueError, "no.such.setting"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_source_with_a_wrong_option_is_not_created(
    db: Session, cluster: Cluster, source: str, case: str
) -> None:
    more, kind, words = SOURCES[case]
    before = snapshot(db)
    text = KAFKA.format(brokers=cluster.bootstrap_servers, topic=source, more=more)
    with pytest.raises(kind) as caught:
        db.execute("SHOW SOURCES;\n" + text)
    message = str(caught.value)
    assert words in message
    assert caught.value.position
    # The option at fault is on the statement's second line; a missing one is about the whole statement.
    assert caught.value.position.line == (2 if kind is MissingOptionError else 3)
    assert f"line {caught.value.position.line}, column " in message
    assert "^" in message
    assert snapshot(db) == before


def test_a_wrong_topic_is_said_at_create_with_the_names_that_are_near(
    db: Session, cluster: Cluster, source: str
) -> None:
    before = snapshot(db)
    with pytest.raises(UnknownTopicError) as caught:
        db.execute(KAFKA.format(brokers=cluster.bootstrap_servers, topic=source + "s", more=""))
    assert f"'{source}'" in str(caught.value)
    assert cluster.bootstrap_servers in str(caught.value)
    assert snapshot(db) == before


def test_an_unreachable_broker_is_tried_within_its_limit_and_named(db: Session, source: str) -> None:
    before = snapshot(db)
    text = KAFKA.format(brokers="127.0.0.1:9", topic="t", more=", connect_timeout_ms = 500")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        db.execute(text)
    assert snapshot(db) == before


VIEWS = {
    "syntax": ("SELEC id FROM events", SqlSyntaxError),
    "leftover": ("SELECT id FROM events EMIT CHANGES please", SqlSyntaxError),
    "unknown source": ("SELECT id FROM evnts", UnknownObjectError),
    "unknown column": ("SELECT nosuch FROM events", UnsupportedSqlError),
    "wrong type": ("SELECT id + array(1) AS x FROM events", UnsupportedSqlError),
    "order": ("SELECT id FROM events ORDER BY id", UnsupportedSqlError),
    "window function": ("SELECT id, row_number() OVER (ORDER BY id) AS r FROM events", UnsupportedSqlError),
    "no watermark": (
        "SELECT window_start, count(*) AS n FROM timeless GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) "
        "EMIT ON WINDOW CLOSE",
        UnsupportedSqlError,
    ),
    "unbounded outer join": (
        "SELECT e.id FROM events e LEFT JOIN timeless t ON e.id = t.id",
        UnsupportedSqlError,
    ),
    "session in place": (
        "SELECT window_start, count(*) AS n FROM events GROUP BY SESSION(ts, INTERVAL '1' MINUTE) EMIT CHANGES",
        UnsupportedSqlError,
    ),
    "no key": ("SELECT count(*) AS n FROM events GROUP BY k", UnsupportedSqlError),
}


@pytest.mark.parametrize("case", VIEWS)
def test_a_view_that_cannot_be_is_not_created(db: Session, source: str, case: str) -> None:
    query, kind = VIEWS[case]
    before = snapshot(db)
    with pytest.raises(kind) as caught:
        db.execute(f"CREATE MATERIALIZED VIEW wrong AS\n  {query}")
    assert isinstance(caught.value, StatementError)
    assert caught.value.position
    assert "^" in str(caught.value)
    assert "forebay_wrong" not in str(caught.value)  # no inner names
    assert snapshot(db) == before


def test_a_view_over_a_view_and_reserved_names_are_refused_with_a_remedy(db: Session, source: str) -> None:
    db.execute("CREATE MATERIALIZED VIEW base AS SELECT id FROM events")
    before = snapshot(db)[0][:2]
    for statement in (
        "CREATE MATERIALIZED VIEW upper AS SELECT id FROM base",
        "CREATE MATERIALIZED VIEW `a/b` AS SELECT id FROM events",
        "CREATE SOURCE `a b` (id INT) FROM DATAGEN ()",
        "SELECT nosuch FROM base",
        "CREATE SOURCE x (id BIGINT, at STRING, WATERMARK FOR at) FROM DATAGEN ()",
    ):
        with pytest.raises(StatementError) as caught:
            db.execute(statement)
        assert caught.value.position
    assert snapshot(db)[0][:2] == before
    with pytest.raises(UnknownObjectError, match="did you mean 'base'"):
        db.execute("SELECT * FROM bas")
    db.execute("DROP MATERIALIZED VIEW base")


def test_secrets_appear_nowhere(
    db: Session, cluster: Cluster, source: str, capfd: pytest.CaptureFixture[str]
) -> None:
    secrets = ["sEcr3t-sasl", "sEcr3t-registry"]
    good = (
        f"CREATE SOURCE guarded (id BIGINT) FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{source}', "
        f"'kafka.sasl.username' = 'ann', 'kafka.sasl.password' = '{secrets[0]}', "
        f"'schema.registry.username' = 'ann', 'schema.registry.password' = '{secrets[1]}') FORMAT JSON"
    )
    db.execute(good)
    db.execute("CREATE MATERIALIZED VIEW guarded_view AS SELECT id FROM guarded")
    caught_up(db)
    assert len(rows(db, "SELECT id FROM guarded")) == len(rows(db, "SELECT id FROM guarded_view")) == 10

    told = [str(db.sql(text).rows()) + str(db.sql(text).notes) for text in (
        "SHOW CREATE SOURCE guarded", "DESCRIBE EXTENDED SOURCE guarded", "SHOW SOURCES",
        "DESCRIBE EXTENDED VIEW guarded_view", "EXPLAIN SELECT * FROM guarded", f"EXPLAIN {good}",
    )]  # fmt: skip
    told += [repr(db.sources()), repr(db.lag()), repr(db.queries())]
    connector = inside.connector_of(db, "guarded", opened=True)
    told += [repr(connector.config), repr(connector), repr(connector.options), repr(connector.health_check())]
    wrong = (
        good.replace("guarded", "another").replace("topic = ", "topicc = "),
        good.replace("guarded", "another").replace(f"topic = '{source}'", "topic = 'nosuch'"),
        good.replace(" FROM KAFKA", ""),
        good.replace("guarded", "another") + " USING SCHEMA REGISTRY (url = 'nowhere')",
        "SELECT nosuch FROM guarded",
        "CREATE MATERIALIZED VIEW another AS SELECT nosuch FROM guarded",
        good + " nonsense",
        good.replace("(id BIGINT)", "(id JUNK)"),
    )
    for statement in wrong:
        with pytest.raises(ForebayError) as caught:
            db.execute(statement)
        told += [str(caught.value), repr(caught.value)]
    told += capfd.readouterr()
    assert "kafka.sasl.password" in told[0]
    for text in told:
        assert not any(secret in text for secret in secrets), text
    holding = [
        path
        for path in db.home.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]
    assert holding == []
    db.execute("DROP SOURCE guarded CASCADE")


def test_drop_refuses_what_is_in_use_and_removes_everything_else(
    db: Session, cluster: Cluster, source: str
) -> None:
    db.execute(create_source(cluster, "dropped", source))
    for view in ("one", "two"):
        db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM dropped")
    caught_up(db)
    with pytest.raises(ObjectInUseError, match="one, two"):
        db.execute("DROP SOURCE dropped")
    with pytest.raises(ObjectInUseError, match="cannot be replaced"):
        db.execute("CREATE OR REPLACE SOURCE dropped (id INT) FROM DATAGEN ()")
    assert (db.home / "views" / "one" / "table").exists()

    db.execute("DROP MATERIALIZED VIEW one")
    assert not (db.home / "views" / "one").exists()
    with pytest.raises(UnknownObjectError):
        db.execute("SELECT * FROM one")
    with pytest.raises(UnknownObjectError):
        db.execute("DROP MATERIALIZED VIEW one")
    assert db.execute("DROP MATERIALIZED VIEW IF EXISTS one")[0].done == "there is no view one"

    # Made anew it has no memory of the one before, and begins where its source began, wherever the group is now.
    cluster.commit("dropped", source, {0: 3, 1: 3})
    db.execute("CREATE MATERIALIZED VIEW one AS SELECT id FROM dropped")
    caught_up(db)
    assert len(rows(db, "SELECT * FROM one")) == 10
    assert [query.records for query in db.queries() if query.view == "one"] == [10]

    done = db.execute("DROP SOURCE dropped CASCADE")[0].done
    assert done == "source dropped dropped, view one too, view two too"
    assert not any((db.home / "views" / view).exists() for view in ("one", "two"))
    with pytest.raises(UnknownObjectError):
        db.execute("DROP SOURCE dropped")
    assert db.execute("DROP SOURCE IF EXISTS dropped; DROP SOURCE IF EXISTS dropped CASCADE")
    assert {"events", "timeless"} == {s.name for s in db.sources()}


def test_of_a_script_the_statements_before_the_wrong_one_stay(db: Session, source: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        db.execute(
            "CREATE SOURCE stays (n BIGINT) FROM DATAGEN (number_of_rows = 1);\n"
            "CREATE MATERIALIZED VIEW gone AS SELECT nope FROM stays;\n"
            "CREATE SOURCE never (n BIGINT) FROM DATAGEN ();"
        )
    assert caught.value.position
    assert caught.value.position.line == 2
    assert {"stays"} == {s.name for s in db.sources()} - {"events", "timeless"}
    db.execute("DROP SOURCE stays")
    with pytest.raises(SqlSyntaxError):  # but one that does not parse runs not at all
        db.execute("CREATE SOURCE never (n BIGINT) FROM DATAGEN (); SELEC 1")
    assert "never" not in {s.name for s in db.sources()}


def test_on_error_is_stored_and_its_options_are_checked(db: Session, cluster: Cluster, source: str) -> None:
    text = create_source(cluster, "careful", source)
    for clause, words in (
        ("ON ERROR = 'dead_leter'", "did you mean 'dead_letter'"),
        ("ON ERROR = 'dead_letter'", "dead_letter_topic"),
        ("ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'd', max_errors = 3)", "max_errors"),
    ):
        with pytest.raises(StatementError, match=words):
            db.execute(f"{text} {clause}")
    assert "careful" not in {s.name for s in db.sources()}
    db.execute(f"{text} ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'd')")
    [(shown,)] = rows(db, "SHOW CREATE SOURCE careful")
    assert "dead_letter_topic" in shown
    assert "On error: dead_letter to d" in notes(db, "DESCRIBE SOURCE careful")
    db.execute("DROP SOURCE careful")
