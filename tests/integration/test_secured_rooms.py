"""Every room on a broker that asks who is there: with passwords, and with certificates of clients.

What is logged, printed and kept meanwhile holds no secret.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sessions
from boards import artifact, run
from commands import forebay
from cryptography.hazmat.primitives import serialization
from guarded import PASSWORD, USER, Guarded
from pools import run_until
from support import kafka_source, numbers, unique

from forebay.blackboard import KafkaBlackboardStore
from forebay.errors import AuthError, ForebayError
from forebay.pool import Pool
from forebay.pool.record import Record
from forebay.runtime.session import Session

KINDS = ["plain-tls", "scram", "scram-512", "mtls", "locked"]
AT_ONCE_S = 12  # on a machine that is busy; what is tried again goes on for a minute
WRONG = "battery-staple"
KEY_PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def locked(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ann's key, under a password: the native reader leaves that to librdkafka."""
    key = serialization.load_pem_private_key((guarded.guard.folder / f"{USER}.key").read_bytes(), None)
    secret = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    path = tmp_path_factory.mktemp("locked") / "ann.key"
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    return path


@pytest.fixture
def client(guarded: Guarded, locked: Path) -> Callable[[str], tuple[str, dict[str, str]]]:
    """Where a kind of connection is made, and its settings."""

    def settings(kind: str) -> tuple[str, dict[str, str]]:
        if kind != "locked":
            return guarded.address(kind), guarded.client(kind)
        changes = {"ssl_key_location": str(locked), "ssl_key_password": KEY_PASSWORD}
        return guarded.address("mtls"), guarded.client("mtls", **changes)

    return settings


def no_secret_in(text: str, *folders: Path) -> None:
    hidden = (PASSWORD, WRONG, KEY_PASSWORD)
    assert not [each for each in hidden if each in text]
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not [each for each in hidden if each.encode() in content], path


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with sessions.connect(tmp_path_factory.mktemp("secured") / "home") as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_its_letters_and_their_replay(
    guarded: Guarded,
    client: Callable[[str], tuple[str, dict[str, str]]],
    session: Session,
    said: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    address, settings = client(kind)
    for name in ("sasl.password", "ssl.key.password"):
        if name in settings:
            variable = name.upper().replace(".", "_") + "_OF_ANN"
            monkeypatch.setenv(variable, settings[name])
            settings[name] = f"${{{variable}}}"
    topic, source = guarded.cluster.make_topic(1), sessions.name("src")
    guarded.cluster.produce(topic, [*numbers(3), "broken"])
    given = ", ".join(f"'kafka.{key}' = '{text}'" for key, text in settings.items())
    session.execute(
        f"CREATE SOURCE {source} (n BIGINT NOT NULL) FROM KAFKA (brokers = '{address}', topic = '{topic}', {given}) "
        f"FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{topic}-dlq')"
    )
    view = sessions.create_view(session, f"SELECT n FROM {source}")
    sessions.caught_up(session)
    assert sorted(sessions.rows(session, f"SELECT n FROM {view}")) == [(0,), (1,), (2,)]
    assert session.dead_letters(source).replay().sent == 1
    sessions.caught_up(session)
    assert [str(each.outcome.state) for each in session.dead_letters(source)] == ["failed_again", "open"]
    assert guarded.cluster.committed(f"forebay-{source}", topic)
    shown = str(session.sql(f"SHOW CREATE SOURCE {source}").fetchall())
    session.execute(f"DROP SOURCE {source} CASCADE")
    no_secret_in(said() + shown, session.home)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_and_a_blackboard(
    guarded: Guarded,
    client: Callable[[str], tuple[str, dict[str, str]]],
    said: Callable[[], str],
    kind: str,
) -> None:
    address, settings = client(kind)
    topic = guarded.cluster.make_topic(1)
    guarded.cluster.produce(topic, numbers(4))
    pool = Pool(
        bootstrap_servers=address, topics=[topic], group_id=unique("group"), kafka=settings, max_attempts=1,
        dead_letter_topic=f"{topic}-dlq",
    )  # fmt: skip
    pool.transactional(unique("tx"))

    async def handle(record: Record) -> None:
        if record.offset % 2:
            raise ValueError("odd")
        record.send(f"{topic}-dlq", b"even")

    run(run_until(pool, handle, lambda: len(guarded.cluster.records(f"{topic}-dlq")) == 4))

    async def publish() -> None:
        prefix, kafka = unique("board") + ".", {"kafka": settings}
        async with KafkaBlackboardStore(address, topic_prefix=prefix, partitions=1, **kafka) as store:  # type: ignore[arg-type]
            await store.publish(artifact(1))
            assert [each.payload for each in await store.list()] == [{"n": 1}]

    run(publish())
    no_secret_in(said() + repr(pool) + repr(pool.options))


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands(client: Callable[[str], tuple[str, dict[str, str]]], tmp_path: Path, kind: str) -> None:
    address, settings = client(kind)
    config, lines, topic = tmp_path / "client.properties", tmp_path / "lines", unique("typed")
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    lines.write_text('{"id": 1}\n')
    environment = {"KAFKA_BOOTSTRAP_SERVERS": address, "PATH": os.environ["PATH"], "COLUMNS": "160"}
    told = ""
    for words, expected in (
        (["topic", "create", topic], ""),
        (["produce", topic, str(lines)], ""),
        (["consume", topic], '{"id": 1}'),
    ):
        done = forebay(*words, "--kafka-config", str(config), environment=environment)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
        told += done.stdout + done.stderr
    no_secret_in(told)


# -- who is not let in ----------------------------------------------------------------------------------------------


def wrong(guarded: Guarded) -> dict[str, tuple[str, dict[str, str], str]]:
    """What is wrong; where, with which settings, and what the error says of it."""
    named = guarded.address("own").replace("127.0.0.1", "localhost")
    nothing_shown = {
        key: text
        for key, text in guarded.client("mtls").items()
        if "certificate" not in key and "key" not in key
    }
    other = {"ssl_ca_location": str(guarded.other_ca)}
    return {
        "password": (
            guarded.address("scram"),
            guarded.client("scram", sasl_password=WRONG),
            "refused the login",
        ),
        "authority": (guarded.address("scram"), guarded.client("scram", **other), "is not trusted"),
        "host name": (named, guarded.client("own"), "is for another name"),
        "certificate": (guarded.address("mtls"), nothing_shown, "certificate"),
    }


@pytest.mark.parametrize("what", ["password", "authority", "host name", "certificate"])
def test_every_room_fails_at_once_and_names_the_cause(
    guarded: Guarded, said: Callable[[], str], tmp_path: Path, what: str
) -> None:
    address, settings, cause = wrong(guarded)[what]
    kafka = {f"kafka.{key}": text for key, text in settings.items()}
    source = guarded.cluster.kafka_options(guarded.topic, bootstrap_servers=address) | kafka
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    async def start_pool() -> None:
        pool = Pool(bootstrap_servers=address, topics=[guarded.topic], group_id="g", kafka=settings)
        await pool.start(lambda record: None)

    async def start_board() -> None:
        more: dict[str, Any] = {"kafka": settings}
        await KafkaBlackboardStore(address, topic_prefix=unique("board") + ".", **more).start()

    attempts: dict[str, Callable[[], Any]] = {
        "source": lambda: kafka_source(source).open(),
        "pool": lambda: run(start_pool()),
        "blackboard": lambda: run(start_board()),
    }
    told = ""
    for room, attempt in attempts.items():
        began = time.monotonic()
        with pytest.raises(ForebayError) as caught:
            attempt()
        assert time.monotonic() - began < AT_ONCE_S, room
        assert isinstance(caught.value, AuthError), (room, caught.value)
        assert cause in str(caught.value), (room, caught.value)
        assert caught.value.remedy
        told += "".join(traceback.format_exception(caught.value))
    done = forebay(
        "topic", "ls", "-b", address, "--kafka-config", str(config), environment={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == AuthError.exit_code
    assert cause in " ".join(done.stderr.split())
    no_secret_in(told + done.stderr + said())
