"""From a bad record to its repair, with the view running: nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import letters as make
import pytest
from confluent_kafka import TopicPartition
from letters import COLUMNS, NO_ID, TEXT_PRICE, Case
from sessions import BASE_MS, caught_up, connect, create_source, name, rows
from support import Cluster

import forebay
from forebay.errors import UnknownObjectError

DLQ = "ON ERROR = 'dead_letter' WITH ({})"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    with connect(tmp_path_factory.mktemp("flow") / "home") as made:
        yield made


def started(
    session: forebay.Session, case: Case, *, startup_mode: str = "group-offsets", **clause: str | int
) -> str:
    """The source with this clause, and a view over it; the view's name."""
    given = {"dead_letter_topic": case.dlq, **clause}
    listed = ", ".join(f"{key} = '{value}'" for key, value in given.items() if value)
    where = {"startup_mode": startup_mode, "auto_offset_reset": "earliest"}
    made = create_source(case.cluster, case.source, case.topic, COLUMNS, **where)
    view = f"{case.source}_v"
    session.execute(
        f"{made} {DLQ.format(listed)}; CREATE MATERIALIZED VIEW {view} AS SELECT id, price FROM {case.source}"
    )
    return view


def good(numbers: range) -> list[bytes]:
    return [json.dumps({"id": number, "price": 1.5}).encode() for number in numbers]


def test_a_repaired_letter_is_in_the_view_and_a_bad_repair_is_a_letter_again(
    session: forebay.Session, cluster: Cluster
) -> None:
    case = make.case(cluster)
    view = started(session, case, max_errors_per_second=0)
    cluster.produce(case.topic, [*good(range(5)), NO_ID, TEXT_PRICE])
    caught_up(session)
    assert len(list(session.dead_letters(case.source))) == 2
    assert session.sql(f"SELECT count(*) FROM {view}").fetchall() == [(5,)]

    # One repair is right, the other is not.
    assert session.dead_letters(case.source).replay(patch='{"id": 77}').sent == 2
    caught_up(session)
    assert (77, 1.5) in rows(session, f"SELECT id, price FROM {view}")
    found = {entry.id: entry for entry in session.dead_letters(case.source)}
    states = sorted(
        (e.letter.kind, str(e.outcome.state), e.replayed_from is not None) for e in found.values()
    )
    assert states == [
        ("SchemaMismatch", "replayed", False),
        ("TypeConversion", "failed_again", False),
        ("TypeConversion", "open", True),
    ]
    [again] = [entry for entry in found.values() if entry.replayed_from]
    assert str(found[again.replayed_from or ""].outcome.state) == "failed_again"

    assert session.dead_letters(case.source).replay(patch='{"price": 9}').sent == 1
    caught_up(session)
    assert sorted(rows(session, f"SELECT id FROM {view}")) == [(0,), (1,), (2,), (3,), (4,), (77,), (77,)]
    [counted] = session.sql(
        f"SELECT * FROM laminar_catalog.source_errors WHERE source_name = '{case.source}'"
    ).rows()
    assert (counted["errors_total"], counted["dlq_total"], counted["skipped"], counted["rate_limited"]) == (
        3,
        3,
        0,
        0,
    )
    assert dict(counted["by_kind"]) == {"SchemaMismatch": 1, "TypeConversion": 2}
    assert counted["last_error"] is not None


@pytest.mark.parametrize("destination", ["topic", "path"])
def test_what_the_rate_limit_kept_out_is_recovered(
    session: forebay.Session, cluster: Cluster, tmp_path: Path, destination: str
) -> None:
    case = make.case(cluster)
    place = (
        {"dead_letter_topic": "", "dead_letter_path": str(tmp_path / "letters")}
        if destination == "path"
        else {}
    )
    bad = [b'{"id": %d' % number for number in range(300)]
    mixed = [record for pair in zip(bad, good(range(300)), strict=True) for record in pair]
    cluster.produce(case.topic, mixed)
    started(session, case, max_errors_per_second=10, **place)
    caught_up(session)
    before = list(session.dead_letters(case.source))
    assert 0 < len(before) < 300

    dry = session.dead_letters(case.source).recover(dry_run=True)
    assert (dry.kept_out, dry.recovered, dry.gone) == (300 - len(before), 300 - len(before), 0)
    assert len(list(session.dead_letters(case.source))) == len(before)
    done = session.sql(f"RECOVER DEAD LETTERS FROM {case.source}").rows()[0]
    assert (done["recovered"], done["gone"], done["changed"]) == (300 - len(before), 0, 0)
    letters = list(session.dead_letters(case.source))
    assert sorted(entry.letter.value or b"" for entry in letters) == sorted(bad)
    assert {entry.letter.kind for entry in letters} == {"MalformedPayload"}
    again = session.dead_letters(case.source).recover()
    assert (again.kept_out, again.recovered) == (0, 0)


def test_what_the_topic_has_lost_is_said_with_its_count(session: forebay.Session, cluster: Cluster) -> None:
    case = make.case(cluster, partitions=1)
    cluster.produce(case.topic, [b"{"] * 200)
    started(session, case, max_errors_per_second=10)
    caught_up(session)
    kept_out = 200 - len(list(session.dead_letters(case.source)))
    assert kept_out > 100
    [deleted] = cluster.admin.delete_records([TopicPartition(case.topic, 0, 150)]).values()
    deleted.result(30)
    report = session.dead_letters(case.source).recover()
    assert report.recovered == 50
    assert report.gone == kept_out - 50
    assert report.ranges


def test_letters_in_files_are_read_and_replayed_too(
    session: forebay.Session, cluster: Cluster, tmp_path: Path
) -> None:
    case = make.case(cluster)
    view = started(session, case, dead_letter_topic="", dead_letter_path=str(tmp_path / "dlq"))
    cluster.produce(case.topic, [*good(range(3)), NO_ID])
    caught_up(session)
    assert session.dead_letters(case.source).replay(patch='{"id": 9}').sent == 1
    assert session.dead_letters(case.source).replay(patch='{"id": 9}').sent == 0
    caught_up(session)
    assert sorted(rows(session, f"SELECT id FROM {view}")) == [(0,), (1,), (2,), (9,)]


def test_letters_are_found_after_the_policy_was_altered(session: forebay.Session, cluster: Cluster) -> None:
    case = make.case(cluster)
    started(session, case)
    cluster.produce(case.topic, [NO_ID])
    caught_up(session)
    session.sql(f"ALTER SOURCE {case.source} ON ERROR = 'skip'")
    assert len(list(session.dead_letters(case.source))) == 1
    assert len(list(session.dead_letters(case.source, topic=case.dlq))) == 1
    other = name("other")
    assert list(session.dead_letters(case.source, topic=other)) == []


def made_again(session: forebay.Session, case: Case) -> None:
    """The source's topic is deleted and created, and its view begins anew. Letters and ledger stay."""
    session.sql(f"DROP MATERIALIZED VIEW {case.source}_v")
    case.cluster.delete_topic(case.topic)
    case.cluster.make_topic(1, name=case.topic)


def view_again(session: forebay.Session, case: Case) -> None:
    session.sql(f"CREATE MATERIALIZED VIEW {case.source}_v AS SELECT id, price FROM {case.source}")
    caught_up(session)


@pytest.mark.parametrize("destination", ["topic", "path"])
@pytest.mark.parametrize("first", ["open", "replayed", "discarded"])
def test_a_letter_of_a_topic_that_was_made_again_is_another_letter(
    session: forebay.Session, cluster: Cluster, tmp_path: Path, destination: str, first: str
) -> None:
    """Though it is about the same bytes, at the same offset, of the same time."""
    case = make.case(cluster, partitions=1)
    place = (
        {"dead_letter_topic": "", "dead_letter_path": str(tmp_path / "letters")}
        if destination == "path"
        else {}
    )
    target = cluster.make_topic(1)
    started(session, case, startup_mode="earliest", **place)
    cluster.produce(case.topic, [NO_ID], key=b"k", timestamp=BASE_MS)
    caught_up(session)
    if first == "replayed":
        assert session.dead_letters(case.source).replay(to=target).sent == 1
    elif first == "discarded":
        assert session.dead_letters(case.source).discard("junk") == 1
    made_again(session, case)
    cluster.produce(case.topic, [NO_ID], key=b"k", timestamp=BASE_MS)
    view_again(session, case)

    letters = session.dead_letters(case.source)
    found = sorted(letters, key=lambda entry: entry.letter.failed_at_ms)
    assert [(entry.id, str(entry.outcome.state)) for entry in found] == [
        (f"{case.topic}/0/0", first),
        (f"{case.topic}/0/0", "open"),
    ]
    ids = [entry.letter.topic_id for entry in found]
    assert len(set(ids)) == 2
    assert all(ids)
    with pytest.raises(UnknownObjectError) as ambiguous:
        letters.get(f"{case.topic}/0/0")
    assert all(f"{case.topic}/0/0/{id}" in ambiguous.value.remedy for id in ids)
    assert letters.get(f"{case.topic}/0/0/{ids[1]}") == found[1]
    assert letters.where(f"topic_id = '{ids[0]}'").replay(to=target).sent == (1 if first == "open" else 0)
    assert letters.only([f"{case.topic}/0/0/{ids[1]}"]).replay(to=target).sent == 1
    assert letters.replay(to=target).sent == 0
    told = [dict(m.headers())["forebay.replayed.from"].decode() for m in case.cluster.records(target)]
    sent = ids if first != "discarded" else ids[1:]
    assert told == [f"{case.topic}/0/0/{id}" for id in sent]


def test_what_was_kept_out_of_a_topic_that_was_made_again_is_gone_and_its_successor_is_not_read_for_it(
    session: forebay.Session, cluster: Cluster
) -> None:
    case = make.case(cluster, partitions=1)
    started(session, case, startup_mode="earliest", max_errors_per_second=10)
    cluster.produce(case.topic, [b"{"] * 200)
    caught_up(session)
    before = len(list(session.dead_letters(case.source)))
    assert before < 100
    made_again(session, case)
    cluster.produce(case.topic, [b"["] * 150)
    view_again(session, case)
    after = len(list(session.dead_letters(case.source))) - before
    assert after < 100
    for dry in (True, False):
        report = session.dead_letters(case.source).recover(dry_run=dry)
        assert (report.kept_out, report.gone) == (350 - before - after, 200 - before)
        assert (report.recovered, report.changed) == (150 - after, 0)
    values = [entry.letter.value for entry in session.dead_letters(case.source)]
    assert (values.count(b"{"), values.count(b"[")) == (before, 150)
    assert session.dead_letters(case.source).recover().kept_out == 0
