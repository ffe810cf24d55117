"""ON ERROR on the real broker: what is skipped, what becomes a letter, what ends the query."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sessions import PATIENCE_S, catalog_of, caught_up, connect, name, rows
from support import Cluster, unique
from waiting import eventually

import forebay
from forebay.deadletter.letter import Letter
from forebay.devstack import DevStack
from forebay.errors import (
    BadRecordError,
    MissingOptionError,
    OptionConflictError,
    OptionValueError,
    TooManyErrorsError,
    UnknownOptionError,
)

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


def source_sql(cluster: Cluster, source: str, topic: str, on_error: str, **options: str | int) -> str:
    given = {"brokers": cluster.bootstrap_servers, "topic": topic, "group_id": source, **options}
    listed = ", ".join(f"{key} = '{value}'" for key, value in given.items())
    return f"CREATE SOURCE {source} ({COLUMNS}) FROM KAFKA ({listed}) FORMAT JSON {on_error}"


def to_topic(topic: str, **more: Any) -> str:
    listed = ", ".join(f"{key} = '{value}'" for key, value in {"dead_letter_topic": topic, **more}.items())
    return f"ON ERROR = 'dead_letter' WITH ({listed})"


def good(numbers: range) -> list[bytes]:
    return [b'{"id": %d, "v": 1}' % number for number in numbers]


def counts(session: forebay.Session, source: str) -> tuple[int, int, int, int]:
    """errors_total, dlq_total, skipped, rate_limited."""
    with catalog_of(session) as catalog:
        [found] = [each for each in catalog.source_errors() if each.source_name == source]
    return found.errors_total, found.dlq_total, found.skipped, found.rate_limited


def view_over(source: str, columns: str = "id") -> str:
    return f"CREATE MATERIALIZED VIEW {source}_v AS SELECT {columns} FROM {source}"


# -- the strategies ---------------------------------------------------------------------------------------


def test_skip_delivers_all_good_records_and_counts_the_others(cluster: Cluster, tmp_path: Path) -> None:
    topic, source = cluster.make_topic(2), name("skip")
    cluster.produce(topic, [value for n in range(300) for value in (*good(range(n, n + 1)), b"{")])
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, "ON ERROR = 'skip'") + ";" + view_over(source))
        caught_up(db)
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(n,) for n in range(300)]
    with connect(tmp_path) as db:
        assert counts(db, source) == (300, 0, 300, 0)


def test_letters_are_byte_exact_and_good_records_stay_in_order(cluster: Cluster, tmp_path: Path) -> None:
    topic, source, dlq = cluster.make_topic(1, max_message_bytes="8000000"), name("exact"), unique("dlq")
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"\x00\xff\xfe"), ("trace", b"again"), ("empty", b""), ("null", None),
        ("forebay.headers", b"99"), ("__connect.errors.topic", b"not yours"),
    ]  # fmt: skip
    big = b'{"id": "' + b"x" * (2 << 20)
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b'{"id": 1', headers),
        (None, b'{"v": 2}', []),
        (b"\x80\x81", None, headers[:2]),
        (b"", b"", []),
        (b"k", b'{"id": "7"}', []),
        (b"k", b"\xff\xfe", []),
        (b"big", big, headers[:1]),
    ]
    bad = {}
    for number, (key, value, own) in enumerate(sent):
        cluster.produce(topic, good(range(number, number + 1)), partition=0)
        [message] = produce_large(cluster, topic, key, value, own)
        bad[message.offset()] = (message.timestamp()[1], key, value, own)
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, to_topic(dlq, max_raw_message_size="1MB")))
        db.execute(view_over(source))
        caught_up(db)
        assert rows(db, f"SELECT id FROM {source}_v") == [(n,) for n in range(len(sent))]
        assert counts(db, source) == (len(sent), len(sent), 0, 0)
    found = {letter.offset: letter for letter in cluster.letters(dlq)}
    assert found.keys() == bad.keys()
    for offset, (stamp, key, value, own) in bad.items():
        letter = found[offset]
        assert (letter.source, letter.topic, letter.partition) == (source, topic, 0)
        assert (letter.timestamp_ms, letter.key, list(letter.headers)) == (stamp, key, own)
        assert letter.size == len(value or b"")
        if value is big:
            assert letter.value == big[: 1 << 20]
            assert letter.sha256 == hashlib.sha256(big).hexdigest()
            assert not letter.whole
        else:
            assert letter.value == value
            assert letter.whole
    assert [found[offset].kind for offset in sorted(found)] == [
        "MalformedPayload", "SchemaMismatch", "MalformedPayload", "MalformedPayload", "TypeConversion",
        "MalformedPayload", "MalformedPayload",
    ]  # fmt: skip
    assert found[3].field == "id"
    assert found[9].field == "id"


def produce_large(
    cluster: Cluster,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> list[Any]:

    producer = cluster.producer(message_max_bytes=8 << 20)
    done: list[Any] = []
    producer.produce(
        topic,
        value,
        key,
        partition=0,
        headers=headers or None,
        on_delivery=lambda error, m: done.append((error, m)),
    )
    assert producer.flush(30) == 0
    [(error, message)] = done
    assert error is None, error
    return [message]


def test_letters_go_to_files_as_json_lines_below_the_home(cluster: Cluster, tmp_path: Path) -> None:
    topic, source = cluster.make_topic(2), name("files")
    cluster.produce(topic, [*good(range(4)), b"{", b"[]", b'{"id": null}'], key=b"\xff")
    with connect(tmp_path) as db:
        where = "ON ERROR = 'dead_letter' WITH (dead_letter_path = 'dlq')"
        db.execute(source_sql(cluster, source, topic, where) + ";" + view_over(source))
        caught_up(db)
        assert counts(db, source) == (3, 3, 0, 0)
    lines = [line for path in (tmp_path / "dlq").glob("*.jsonl") for line in path.read_text().splitlines()]
    forms = [json.loads(line) for line in lines]
    assert {form["source_name"] for form in forms} == {source}
    assert {"raw_bytes_base64", "error_message", "error_kind", "timestamp", "partition", "offset"} < forms[
        0
    ].keys()
    assert sorted(Letter.from_json(form).value or b"" for form in forms) == [b"[]", b"{", b'{"id": null}']
    assert {Letter.from_json(form).key for form in forms} == {b"\xff"}


def test_fail_stops_at_the_record_names_it_and_keeps_what_came_before(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, source = cluster.make_topic(1), name("fail")
    cluster.produce(topic, good(range(5)))
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, "ON ERROR = 'fail'") + ";" + view_over(source))
        caught_up(db)
        cluster.produce(topic, [*good(range(5, 8)), b'{"id": "x"}', *good(range(8, 10))])
        with pytest.raises(BadRecordError) as caught:
            db.wait(until_caught_up=True, timeout=PATIENCE_S)
        assert f"{topic}-0 at offset 8: TypeConversion: id: " in caught.value.message
        assert "ALTER SOURCE" in caught.value.remedy
        assert rows(db, f"SELECT id FROM {source}_v") == [(n,) for n in range(5)]
        assert [query.state for query in db.queries()] == ["failed"]
        # And the way out that it names.
        db.execute(f"ALTER SOURCE {source} ON ERROR = 'skip'")
        db.execute(view_over(source))
        caught_up(db)
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(n,) for n in range(10)]


# -- changing one's mind ----------------------------------------------------------------------------------


def test_alter_source_takes_effect_in_a_running_query_and_survives_the_session(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, source, dlq = cluster.make_topic(1), name("alter"), unique("dlq")
    script = source_sql(cluster, source, topic, "ON ERROR = 'skip'") + ";" + view_over(source)
    cluster.produce(topic, [b"one", *good(range(1))])
    with connect(tmp_path) as db:
        db.execute(script)
        caught_up(db)
        db.execute(f"ALTER SOURCE {source} {to_topic(dlq)}")
        cluster.produce(topic, [b"two", *good(range(1, 2))])
        caught_up(db)
        assert [letter.value for letter in cluster.letters(dlq)] == [b"two"]
        # From another session on the same home, as an operator would.
        with forebay.connect(home=tmp_path) as other:
            other.execute(f"ALTER SOURCE {source} ON ERROR = skip")
        cluster.produce(topic, [b"three", *good(range(2, 3))])
        caught_up(db)
        db.execute(f"ALTER SOURCE {source} {to_topic(dlq, max_errors_per_second=7)}")
        assert [each.on_error for each in db.sources()] == ["dead_letter"]
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(0,), (1,), (2,)]
    assert [letter.value for letter in cluster.letters(dlq)] == [b"two"]
    with connect(tmp_path) as db:
        db.execute(script)  # the same file again: what was altered stays altered
        cluster.produce(topic, [b"four"])
        caught_up(db)
        [created] = rows(db, f"SHOW CREATE SOURCE {source}")
        assert "max_errors_per_second = '7'" in created[0]
        assert counts(db, source) == (4, 2, 2, 0)
    assert sorted(letter.value or b"" for letter in cluster.letters(dlq)) == [b"four", b"two"]


@pytest.mark.parametrize(
    ("clause", "kind", "marked"),
    [
        (
            "ON ERROR = 'dead_leter' WITH (dead_letter_topic = 'x')",
            OptionValueError,
            "ON ERROR = 'dead_leter'",
        ),
        ("ON ERROR = 'dead_letter'", MissingOptionError, "ON ERROR = 'dead_letter'"),
        ("ON ERROR = skip WITH (dead_letter_topic = 'x')", UnknownOptionError, "dead_letter_topic = 'x'"),
        (
            "ON ERROR = dead_letter WITH (dead_letter_topic = 'x', max_errors_per_second = 'many')",
            OptionValueError,
            "max_errors_per_second = 'many'",
        ),
        (
            "ON ERROR = dead_letter WITH (dead_letter_topic = 'not a topic!')",
            OptionValueError,
            "dead_letter_topic",
        ),
        (
            "ON ERROR = dead_letter WITH (dead_letter_topic = '{topic}')",
            OptionConflictError,
            "dead_letter_topic",
        ),
        (
            "ON ERROR = dead_letter WITH (dead_letter_topic = '{compacted}')",
            OptionConflictError,
            "dead_letter_topic",
        ),
    ],
)
def test_a_wrong_clause_is_shown_where_it_is_wrong(
    cluster: Cluster, tmp_path: Path, clause: str, kind: type[Exception], marked: str
) -> None:
    topic = cluster.make_topic(1)
    compacted = cluster.make_topic(1, cleanup_policy="compact")
    clause = clause.format(topic=topic, compacted=compacted)
    with forebay.connect(home=tmp_path) as db:
        db.execute(source_sql(cluster, "fine", topic, ""))
        for statement in (source_sql(cluster, "s", topic, clause), f"ALTER SOURCE fine {clause}"):
            with pytest.raises(kind) as caught:
                db.execute(statement)
            assert isinstance(caught.value, forebay.errors.StatementError)
            assert caught.value.position is not None
            assert statement[caught.value.position.column - 1 :].startswith(marked)
        assert [each.name for each in db.sources()] == ["fine"]
        assert [each.on_error for each in db.sources()] == ["skip"]


# -- limits -----------------------------------------------------------------------------------------------


def test_the_limit_holds_over_all_tasks_and_what_it_keeps_out_is_in_the_ledger(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, source, dlq = cluster.make_topic(2), name("limit"), unique("dlq")
    cluster.produce(topic, [value for n in range(200) for value in (b"bad", *good(range(n, n + 1)))])
    with connect(tmp_path) as db:
        began = time.monotonic()
        db.execute(source_sql(cluster, source, topic, to_topic(dlq, max_errors_per_second=10)))
        db.execute(view_over(source))
        caught_up(db)
        took_s = time.monotonic() - began
        errors, routed, skipped, limited = counts(db, source)
        with catalog_of(db) as catalog:
            ledger = catalog.ledger(source)
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(n,) for n in range(200)]
        assert (errors, skipped) == (200, 0)
        assert routed + limited == 200
        assert 10 <= routed <= 10 + 10 * took_s
        assert sum(stretch.bad for stretch in ledger) == limited
        assert [each.rate_limited for each in db.sources()] == [limited]
    found = cluster.letters(dlq)
    assert len({letter.identity for letter in found}) == len(found) == routed
    for number, (_, high) in cluster.watermarks(topic).items():
        covered = {n for s in ledger if s.partition == number for n in range(s.start, s.end)}
        lettered = {letter.offset for letter in found if letter.partition == number}
        bad = set(range(high)) if number == 0 else set()  # every other record went to partition 0
        assert bad <= covered | lettered


def test_letters_of_all_tasks_together_come_at_the_rate_within_a_tenth(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two views over one source, each with tasks of its own, while more poison arrives than the limit lets by."""
    topic, source, dlq, rate, window_s = cluster.make_topic(2), name("rate"), unique("dlq"), 200, 5.0
    ended = threading.Event()

    def poison() -> None:
        producer = cluster.producer()
        while not ended.wait(0.05):
            for number in range(100):
                producer.produce(topic, b"{", partition=number % 2)
            producer.flush()

    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, to_topic(dlq, max_errors_per_second=rate)))
        for view in ("a", "b"):
            db.execute(f"CREATE MATERIALIZED VIEW {source}_{view} AS SELECT id FROM {source}")
        writing = threading.Thread(target=poison)
        writing.start()
        try:
            eventually(
                lambda: any(each.rate_limited for each in db.sources()), "the limit is reached", PATIENCE_S
            )
            time.sleep(window_s)  # a rate is what is tested: it takes a time to see it
        finally:
            ended.set()
            writing.join()
    asked = Counter(letter.failed_at_ms / 1000 for letter in cluster.letters(dlq))
    moments = sorted(asked)
    gaps = [later - sooner for sooner, later in itertools.pairwise(moments)]
    granted = asked.total() - asked[moments[0]]  # the first found the bucket full
    assert sum(gaps) > window_s / 2
    assert granted <= 1.1 * rate * sum(gaps)
    assert granted >= 0.9 * rate * sum(min(gap, 1.0) for gap in gaps)  # it holds one second's worth


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("ON ERROR = 'skip' WITH (max_consecutive_errors = 5)", "5 records in a row are bad"),
        ("ON ERROR = 'skip' WITH (max_error_ratio = 0.02)", "of the last 1"),
    ],
)
def test_a_breaker_stops_the_query_and_shows_three_examples(
    cluster: Cluster, tmp_path: Path, clause: str, words: str
) -> None:
    topic, source = cluster.make_topic(1), name("breaker")
    cluster.produce(topic, good(range(110)))
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, clause) + ";" + view_over(source))
        caught_up(db)
        # In two micro-batches: neither alone has enough of them.
        cluster.produce(topic, [b"bad"] * 2)
        caught_up(db)
        cluster.produce(topic, [b"bad"] * 3)
        with pytest.raises(TooManyErrorsError) as caught:
            db.wait(until_caught_up=True, timeout=PATIENCE_S)
        assert words in caught.value.message
        assert [f"offset {n}:" in caught.value.message for n in (111, 112, 113, 114)] == [
            False,
            True,
            True,
            True,
        ]
        assert len(rows(db, f"SELECT id FROM {source}_v")) == 110


# -- the broker of the letters is away --------------------------------------------------------------------


def test_letters_wait_for_their_broker_and_nothing_is_committed_meanwhile(
    cluster: Cluster, mortal_broker: DevStack, tmp_path: Path
) -> None:
    topic, source, dlq = cluster.make_topic(1), name("away"), unique("dlq")
    there = Cluster(mortal_broker)
    clause = to_topic(dlq, dead_letter_brokers=mortal_broker.bootstrap_servers)
    with connect(tmp_path) as db:
        db.execute(source_sql(cluster, source, topic, clause) + ";" + view_over(source))
        cluster.produce(topic, [b"first", *good(range(1))])
        caught_up(db)
        assert cluster.committed(source, topic) == {0: 2}
        mortal_broker.kill_broker()
        cluster.produce(topic, [b"second", *good(range(1, 2))])
        with pytest.raises(forebay.errors.WaitTimeoutError):
            db.wait(until_caught_up=True, timeout=8)
        assert cluster.committed(source, topic) == {0: 2}
        assert rows(db, f"SELECT id FROM {source}_v") == [(0,)]
        mortal_broker.start_broker()
        caught_up(db)
        assert sorted(rows(db, f"SELECT id FROM {source}_v")) == [(0,), (1,)]
        assert counts(db, source) == (2, 2, 0, 0)
    eventually(lambda: dlq in there.admin.list_topics(timeout=10).topics, "the topic is back")
    assert {letter.value for letter in Cluster(mortal_broker).letters(dlq)} == {b"first", b"second"}
