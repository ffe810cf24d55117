"""The dead-letter desk on a real broker and a running view: from the group to the repaired row."""

from __future__ import annotations

import json
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import letters as make
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from letters import BROKEN, COLUMNS, NO_ID, TEXT_PRICE, Case
from sessions import caught_up, connect, create_source, rows
from support import Cluster, Stack
from waiting import eventually

import forebay
from forebay.deadletter.desk import LetterDesk
from forebay.deadletter.desk_views import Selection
from forebay.deadletter.replacing import Replacement
from forebay.errors import AlreadyRunningError, OptionValueError, UnknownObjectError
from forebay.runtime.home import Home


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    with connect(tmp_path_factory.mktemp("desk") / "home") as made:
        yield made


@pytest.fixture(scope="module")
def desk(session: forebay.Session) -> Iterator[LetterDesk]:
    """As another process sees the home, while the session runs its views."""
    with Home(session.home) as home, home.letter_desk() as made:
        yield made


def viewed(session: forebay.Session, case: Case, **options: str) -> str:
    """The source, and a view over it."""
    made = create_source(
        case.cluster, case.source, case.topic, COLUMNS, auto_offset_reset="earliest", **options
    )
    view = f"{case.source}_v"
    session.execute(
        f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{case.dlq}', max_errors_per_second = '0'); "
        f"CREATE MATERIALIZED VIEW {view} AS SELECT id, price FROM {case.source}"
    )
    return view


def cheap(count: int) -> list[bytes]:
    return [json.dumps({"id": number, "price": f"cheap {number}"}).encode() for number in range(count)]


def test_a_group_is_repaired_replayed_and_seen_in_the_view(
    session: forebay.Session, desk: LetterDesk, cluster: Cluster
) -> None:
    case = make.case(cluster)
    view = viewed(session, case)
    cluster.produce(case.topic, [make.GOOD, *cheap(7), NO_ID, BROKEN])
    caught_up(session)
    assert desk.refresh(case.source).behind == 0

    found = desk.groups(case.source).groups
    assert next((each.kind, each.field, each.letters) for each in found) == ("TypeConversion", "price", 7)
    assert len(found) == 3
    assert sum(found[0].buckets) == 7
    group = found[0]
    page = desk.letters(group.id, size=5)
    assert (page.total, len(page.letters)) == (7, 5)

    shown = desk.letter(case.source, page.letters[0].id)
    assert shown.value is not None
    assert shown.value.text is not None
    assert shown.value.text_span is not None
    start, end = shown.value.text_span
    assert shown.value.text[start:end].startswith('"cheap ')
    assert shown.now == "refused, for the same reason"
    assert shown.row.fate == "open"
    assert desk.letters(group.id, search="cheap 3").total == 1

    assert desk.dry_run(case.source, page.letters[0].id, b'{"id": 1, "price": "x"}').field == "price"
    tried = desk.dry_run(case.source, page.letters[0].id, b'{"id": 1, "price": 2}')
    assert tried.accepted
    assert json.loads(tried.row or "") == {"id": 1, "price": 2.0}
    assert tried.took_ms < 100
    previews = desk.preview(group.id, '{"price": 4.5}')
    assert len(previews) == 5
    assert all(each.trial and each.trial.accepted for each in previews)

    done = desk.replay(Selection(case.source, group=group.id), actor="ann", patch='{"price": 4.5}').wait(60)
    assert (done.state, done.sent, done.total, done.error) == ("done", 7, 7, None)
    ids = [row.id for row in desk.letters(group.id, state="all").letters]
    # One letter with an edited value, which is wrong again: its new letter joins this group.
    [other] = desk.letters(found[1].id).letters
    edited = desk.replay(Selection(case.source, ids=(other.id,)), actor="ann", value=TEXT_PRICE).wait(60)
    assert (edited.state, edited.sent) == ("done", 1)
    caught_up(session)

    eventually(
        lambda: set(desk.fates(case.source, ids).values()) == {"in_view"}, "the desk knows that they are read"
    )
    assert Counter(price for _, price in rows(session, f"SELECT id, price FROM {view}"))[4.5] == 7
    eventually(
        lambda: desk.fates(case.source, [other.id]) == {other.id: "failed_again"}, "the bad repair is known"
    )
    history = desk.letter(case.source, other.id).history
    assert [(event.state, event.actor) for event in history] == [("replayed", "ann"), ("failed_again", None)]
    assert desk.group(group.id).counts == {"open": 1, "replayed": 7}


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "price", "type": "double"}],
}


def test_an_avro_letter_is_repaired_as_json_and_seen_in_the_view(
    session: forebay.Session, desk: LetterDesk, kafka: Cluster, stack: Stack, registry: SchemaRegistryClient
) -> None:
    case = make.case(kafka, partitions=1)
    number = registry.register_schema(f"{case.topic}-value", Schema(json.dumps(ORDER), "AVRO"))
    frame = bytes(1) + number.to_bytes(4, "big")
    good = frame + b"\x02\x02" + struct.pack("<d", 2.5)
    no_id = frame + b"\x00" + struct.pack("<d", 88.5)
    made = create_source(kafka, case.source, case.topic, COLUMNS, auto_offset_reset="earliest")
    view = f"{case.source}_v"
    session.execute(
        f"{made.replace('FORMAT JSON', 'FORMAT AVRO')} USING SCHEMA REGISTRY (url = '{stack.schema_registry_url}') "
        f"ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{case.dlq}', max_errors_per_second = '0'); "
        f"CREATE MATERIALIZED VIEW {view} AS SELECT id, price FROM {case.source}"
    )
    kafka.produce(case.topic, [good, no_id, no_id, good[:9]])
    caught_up(session)
    desk.refresh(case.source)
    group, broken = desk.groups(case.source).groups
    assert (group.kind, group.field, group.letters) == ("SchemaMismatch", "id", 2)

    first = desk.letters(group.id).letters[0].id
    value = desk.letter(case.source, first).value
    assert value is not None
    assert (value.form, value.editable, json.loads(value.decoded or "")) == (
        "json",
        True,
        {"id": None, "price": 88.5},
    )
    tried = desk.dry_run(case.source, first, b'{"id": "seven", "price": 88.5}', "json")
    assert (tried.accepted, "id: expected long" in str(tried.message)) == (False, True)
    refused = desk.dry_run(case.source, first, b'{"id": null, "price": 88.5}', "json")
    assert (refused.field, refused.text_span) == ("id", (7, 11))
    edited = b'{"id": 7, "price": 88.5}'
    assert json.loads(desk.dry_run(case.source, first, edited, "json").row or "") == {"id": 7, "price": 88.5}
    one = desk.replay(Selection(case.source, ids=(first,)), actor="ann", value=edited, form="json").wait(60)
    assert (one.state, one.sent) == ("done", 1)

    # The other by a patch for the group, and what is no datum at all by a whole value of the newest schema.
    [preview] = desk.preview(group.id, '{"id": 8}')
    assert preview.before is not None
    assert json.loads(preview.after or "") == {"id": 8, "price": 88.5}
    assert (
        desk.replay(Selection(case.source, group=group.id), actor="ann", patch='{"id": 8}').wait(60).sent == 1
    )
    cut = desk.letter(case.source, broken.samples[0])
    assert cut.value is not None
    assert (cut.value.editable, cut.value.decoded) == (True, None)
    assert "at byte" in str(cut.value.note)
    whole = b'{"id": 9, "price": 1}'
    alone = Selection(case.source, ids=(cut.row.id,))
    assert desk.replay(alone, actor="ann", value=whole, form="json").wait(60).sent == 1
    caught_up(session)
    assert sorted(rows(session, f"SELECT id, price FROM {view}")) == [
        (1, 2.5),
        (7, 88.5),
        (8, 88.5),
        (9, 1.0),
    ]
    assert {value[:5] for value in kafka.values(case.topic) if value} == {frame}


def test_letters_of_several_topics_go_back_to_the_topic_that_each_came_from(
    session: forebay.Session, desk: LetterDesk, cluster: Cluster
) -> None:
    source, topics, dlq = (
        make.name("letters"),
        [cluster.make_topic(1) for _ in range(2)],
        cluster.make_topic(1),
    )
    made = create_source(cluster, source, ",".join(topics), COLUMNS, auto_offset_reset="earliest")
    session.execute(
        f"{made.replace('topic =', 'topics =')} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}')"
    )
    for place, topic in enumerate(topics):
        case = Case(cluster, source, topic, dlq)
        case.fail(session, [json.dumps({"id": place, "price": f"{place + 1}.5 EUR"}).encode()] * (place + 1))
    desk.refresh(source)
    [group] = desk.groups(source).groups
    assert group.letters == 3
    euros = [Replacement("price", " EUR$")]
    [*previews] = desk.preview(group.id, None, replace=euros)
    assert all(each.trial and each.trial.accepted for each in previews)
    one = next(row for row in desk.letters(group.id).letters if row.topic == topics[1])
    done = desk.replay(Selection(source, ids=(one.id,)), actor="ann", replace=euros, to=topics[0]).wait(60)
    assert (done.state, done.sent, done.target) == ("done", 1, topics[0])

    done = desk.replay(Selection(source, group=group.id), actor="ann", replace=euros).wait(60)
    assert (done.state, done.sent, done.error) == ("done", 2, None)
    assert set(done.target.split(", ")) == set(topics)
    sent = [[json.loads(value or b"")["price"] for value in cluster.values(topic)] for topic in topics]
    found = [sorted(price for price in prices if isinstance(price, float)) for prices in sent]
    assert found == [[1.5, 2.5], [2.5]]


def test_a_replay_that_is_stopped_loses_and_doubles_nothing(
    session: forebay.Session, desk: LetterDesk, cluster: Cluster
) -> None:
    case = make.case(cluster, partitions=1)
    session.execute(case.statement())
    case.fail(session, cheap(60))
    desk.refresh(case.source)
    [group] = desk.groups(case.source).groups

    job = desk.replay(Selection(case.source, group=group.id), actor="ann", rate=20)
    with pytest.raises(AlreadyRunningError):
        desk.replay(Selection(case.source, all=True), actor="bob")
    eventually(lambda: job.status.sent > 0, "some are sent")
    job.stop()
    stopped = job.wait(30)
    assert stopped.state == "stopped"
    assert 0 < stopped.sent < 60
    assert desk.letters(group.id).total == 60 - stopped.sent

    rest = desk.replay(Selection(case.source, group=group.id), actor="bob").wait(60)
    assert (rest.state, rest.sent) == ("done", 60 - stopped.sent)
    values = Counter(cluster.values(case.topic))
    assert values == Counter(cheap(60) * 2)  # once by whoever wrote them, once by the replays
    assert [each.id for each in desk.jobs()][:2] == [rest.id, stopped.id]


def test_letters_are_discarded_and_reopened_with_a_reason_and_a_name(
    session: forebay.Session, desk: LetterDesk, cluster: Cluster
) -> None:
    case = make.case(cluster)
    session.execute(case.statement())
    case.fail(session, [*cheap(3), NO_ID])
    desk.refresh(case.source)
    group = desk.groups(case.source).groups[0]
    assert desk.discard(Selection(case.source, group=group.id), "load test", actor="ann") == 3
    assert [each.letters for each in desk.groups(case.source).groups] == [1]
    one = desk.letters(group.id, state="discarded").letters[0]
    # Another process takes one back; the desk hears of it without reading a letter.
    assert session.dead_letters(case.source).only([one.id]).reopen() == 1
    assert desk.group(group.id).counts == {"open": 1, "discarded": 2}
    found = session.sql(
        "SELECT pattern, letters, open, discarded, sample_id FROM forebay_catalog.dead_letter_groups "
        f"WHERE source = '{case.source}' AND error_kind = 'TypeConversion'"
    ).rows()
    assert [(row["letters"], row["open"], row["discarded"]) for row in found] == [(3, 1, 2)]
    events = desk.letter(case.source, one.id).history
    assert [(event.state, event.reason, event.actor) for event in events] == [
        ("discarded", "load test", "ann"),
        ("open", None, None),
    ]
    with pytest.raises(UnknownObjectError):
        desk.letter(case.source, f"{case.topic}/0/999")


def test_letters_in_files_and_those_of_other_systems_are_shown_and_replayed(
    session: forebay.Session, desk: LetterDesk, cluster: Cluster, tmp_path: Path
) -> None:
    case = make.case(cluster, partitions=1)
    made = create_source(cluster, case.source, case.topic, COLUMNS, auto_offset_reset="earliest")
    session.execute(f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_path = '{tmp_path}')")
    sent = cluster.produce(case.topic, cheap(3))
    found = case.letters(session, [m for m in cluster.records(case.topic) if m.offset() < len(sent)])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each.to_json()) + "\n" for each in found))
    desk.refresh(case.source)
    [group] = desk.groups(case.source).groups
    assert group.letters == 3
    assert desk.replay(Selection(case.source, all=True), actor="ann").wait(60).sent == 3

    dlq = cluster.make_topic(1)
    where = [("topic", case.topic.encode()), ("partition", b"0"), ("offset", b"1")]
    failed = [("exception.class.name", b"org.acme.DataException"), ("exception.message", b"bad record 17")]
    connect_ = [(f"__connect.errors.{n}", v) for n, v in [*where, *failed, ("connector.name", b"sink")]]
    spring = [
        ("kafka_dlt-original-topic", case.topic.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", 0)),
        ("kafka_dlt-original-offset", struct.pack(">q", 2)),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"no such customer 4711"),
    ]
    streams = [(f"__streams.errors.{n}", v) for n, v in [*where, ("exception", b"x.Y"), ("message", b"m")]]
    for headers in (connect_, spring, streams):
        cluster.produce(dlq, [b"{}"], headers=[("own", b"1"), *headers])
    with pytest.raises(OptionValueError):
        desk.watch_topic(dlq, cluster.bootstrap_servers, **{"kafka.sasl.password": "secret"})
    desk.watch_topic(dlq, cluster.bootstrap_servers)
    desk.refresh()
    others = {each.kind: each for each in desk.owners() if each.kind != "source"}
    assert {kind: each.name for kind, each in others.items()} == {
        "connect": "connect:sink",
        "spring": "spring:unnamed",
        "streams": "streams:unnamed",
    }
    [of_connect] = desk.groups(others["connect"].key).groups
    assert (of_connect.kind, of_connect.pattern) == ("DataException", "bad record <n>")
    owner = others["connect"].key
    replay = desk.replay(Selection(owner, all=True), actor="ann").wait(60)
    assert (replay.state, replay.sent, replay.target) == ("done", 1, case.topic)
    assert desk.fates(owner, [of_connect.samples[0]]) == {of_connect.samples[0]: "sent"}
    again = [m for m in cluster.records(case.topic) if ("own", b"1") in (m.headers() or [])]
    assert len(again) == 1
    assert not any(n.startswith("__connect") for n, _ in again[0].headers() or [])
    desk.forget_topic(dlq, cluster.bootstrap_servers)
    assert desk.watched() == ()


def test_an_index_that_is_lost_or_damaged_is_made_anew(session: forebay.Session, cluster: Cluster) -> None:
    case = make.case(cluster)
    session.execute(case.statement())
    case.fail(session, cheap(4))
    with Home(session.home) as home, home.letter_desk() as first:
        first.refresh(case.source)
        [group] = first.groups(case.source).groups
        first.discard(Selection(case.source, ids=(group.samples[0],)), "not wanted", actor="ann")
    path = session.home / "dead_letters" / "index.db"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(b"no database at all, and long enough to look like a file of one" * 100)
    with Home(session.home) as home, home.letter_desk() as second:
        second.refresh(case.source)
        assert second.group(group.id).counts == {"open": 3, "discarded": 1}


def test_many_users_may_ask_at_once(session: forebay.Session, desk: LetterDesk, cluster: Cluster) -> None:
    case = make.case(cluster)
    session.execute(case.statement())
    case.fail(session, cheap(5))
    desk.refresh(case.source)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(5):
                [group] = desk.groups(case.source).groups
                for row in desk.letters(group.id).letters:
                    desk.letter(case.source, row.id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
