"""`mask` on a source: no masked value is shown anywhere, and a replay sends the true bytes."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator

import letters as make
import pytest
from commands import forebay as command
from letters import Case
from sessions import caught_up, connect, create_source, rows
from support import Cluster

import forebay
from forebay.deadletter.desk_views import Selection
from forebay.deadletter.report import REPORT
from forebay.errors import OptionValueError
from forebay.hiding import HIDDEN
from forebay.runtime.home import Home

COLUMNS = "id BIGINT NOT NULL, email STRING, card BIGINT, price DOUBLE"
EMAIL, CARD, TOKEN = "ann@example.org", "4711-0815-secret", "tkn-99887766"
SECRETS = (EMAIL, CARD, TOKEN)


def record(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "email": EMAIL, "card": 4, "price": 1.5} | more).encode()


BAD_CARD = record(1, card=CARD)
BAD_PRICE = record(2, price="cheap")
BROKEN = record(3)[:-1] + b", oops}"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Session]:
    with connect(tmp_path_factory.mktemp("masked") / "home") as made:
        yield made


@pytest.fixture(scope="module")
def case(session: forebay.Session, cluster: Cluster) -> Case:
    found = make.case(cluster, partitions=1)
    made = create_source(
        cluster, found.source, found.topic, COLUMNS, auto_offset_reset="earliest", mask="email, card*, x-auth"
    )
    session.execute(
        f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{found.dlq}', max_errors_per_second = '0'); "
        f"CREATE MATERIALIZED VIEW {found.source}_v AS SELECT id, email, price FROM {found.source}"
    )
    headers = [("x-auth", TOKEN.encode()), ("trace", b"1")]
    cluster.produce(found.topic, [record(0), BAD_CARD, BAD_PRICE, BROKEN], headers=headers)
    caught_up(session)
    return found


def clean(text: str) -> str:
    assert not [secret for secret in SECRETS if secret in text]
    return text


def test_logs_counts_and_descriptions_quote_nothing(
    session: forebay.Session, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "forebay")
    case.cluster.produce(case.topic, [BAD_CARD])
    caught_up(session)
    REPORT.flush()
    clean(repr([each.getMessage() for each in caplog.get_records("setup")]))
    assert "records_rejected" in clean(caplog.text)
    clean(repr(session.sql("SELECT * FROM forebay_catalog.source_errors").rows()))
    clean(repr(session.sql(f"DESCRIBE EXTENDED SOURCE {case.source}").rows()))


def test_letters_are_shown_and_exported_without_and_are_not_found_by_what_is_masked(
    session: forebay.Session, case: Case
) -> None:
    letters = session.dead_letters(case.source)
    shown = [clean(repr(entry)) for entry in letters]
    assert len(shown) >= 3
    exported = io.StringIO()
    assert letters.export(exported) == len(shown)
    for line in exported.getvalue().splitlines():
        found = forebay.Letter.from_json(json.loads(line))
        clean(repr((found.key, found.value, found.headers, found.message)))
    for secret in SECRETS:
        for column in ("value", "key", "error_message"):
            assert list(letters.where(f"{column} LIKE '%{secret}%'")) == []
    assert len(list(letters.where("value LIKE '%cheap%'"))) == 1
    table = session.sql(f"SELECT * FROM forebay_catalog.dead_letters WHERE source = '{case.source}'").rows()
    assert HIDDEN in clean(repr(table))
    # Whoever repairs by a program has the true bytes.
    assert any(entry.letter.value == BAD_CARD for entry in letters)


def test_commands_show_nothing_that_is_masked(session: forebay.Session, case: Case) -> None:
    where = ["--home", str(session.home)]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    for words in (
        ["dlq", "ls", "-s", case.source, *where],
        ["dlq", "ls", "-s", case.source, "-o", "json", *where],
        ["dlq", "export", "-s", case.source, *where],
        ["dlq", "groups", "-s", case.source, *where],
        ["dlq", "groups", "-s", case.source, "-o", "json", *where],
        ["dlq", "replay", "-s", case.source, "--all", "--dry-run", *where],
        ["consume", "--source", case.source, *where],
        ["consume", "--source", case.source, "-o", "jsonl", *where],
        *(["dlq", "show", "-s", case.source, f"{case.topic}/0/{at}", *more, *where] for at in (1, 3) for more in ([], ["-o", "json"])),
    ):  # fmt: skip
        done = command(*words, environment=environment)
        assert done.returncode == 0, done.stderr
        clean(done.stdout + done.stderr)


def test_the_desk_shows_an_edit_with_marks_and_a_replay_sends_the_true_bytes(
    session: forebay.Session, case: Case
) -> None:
    with Home(session.home) as home, home.letter_desk() as desk:
        desk.refresh(case.source)
        for row in desk.letters(state="all", owner=case.source).letters:
            shown = desk.letter(case.source, row.id)
            clean(repr(shown))
            assert shown.value is not None
            assert shown.value.hex == ()
            assert all(header.text == HIDDEN for header in shown.headers if header.name == "x-auth")
        for secret in SECRETS:
            assert desk.letters(state="all", owner=case.source, search=secret).total == 0
        clean(repr(desk.groups(case.source, "all")))

        id = f"{case.topic}/0/2"
        value = desk.letter(case.source, id).value
        assert value is not None
        assert value.text is not None
        assert value.editable
        assert value.text_span is not None
        assert value.text[slice(*value.text_span)] == '"cheap"'
        edited = value.text.replace('"cheap"', "9.5").encode()
        tried = desk.dry_run(case.source, id, edited)
        assert tried.accepted
        assert json.loads(tried.row or "")["email"] == HIDDEN
        with pytest.raises(OptionValueError):
            desk.dry_run(case.source, id, edited.replace(HIDDEN.encode(), f"{HIDDEN}7".encode()))
        before = len(case.cluster.values(case.topic))
        assert desk.replay(Selection(case.source, ids=(id,)), actor="ann", value=edited).wait(60).sent == 1
        assert case.cluster.values(case.topic)[before:] == [record(2, price=9.5)]
    caught_up(session)
    assert (2, EMAIL, 9.5) in rows(session, f"SELECT id, email, price FROM {case.source}_v")


def test_alter_source_sets_and_takes_away_a_mask(session: forebay.Session, cluster: Cluster) -> None:
    case = make.case(cluster, partitions=1)
    session.execute(case.statement())
    case.fail(session, [b'{"price": "cheap"}'])
    session.execute(f"ALTER SOURCE {case.source} SET (mask = 'price')")
    [entry] = session.dead_letters(case.source)
    assert entry.row(["value"]) == {"value": f'{{"price": "{HIDDEN}"}}'}
    assert "mask" in str(session.sql(f"SHOW CREATE SOURCE {case.source}").rows())
    session.execute(f"ALTER SOURCE {case.source} SET (mask = '')")
    [entry] = session.dead_letters(case.source)
    assert entry.row(["value"]) == {"value": '{"price": "cheap"}'}
