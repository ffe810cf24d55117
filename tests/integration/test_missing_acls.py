"""ACLs: what each room needs is what its page says, neither more nor less, and what is missing is named with its line.

A user who may do nothing tries a room. Each error names a `kafka-acls` line, which is run as it is, until the room works.
What was allowed then is what docs/how-to/secure-brokers.md says.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sessions
from boards import artifact, run
from commands import forebay
from documents import ROOT
from guarded import Guarded
from pools import run_until
from support import kafka_source, numbers, read
from waiting import eventually, until

from forebay.blackboard import Artifact, KafkaBlackboardStore, Orchestrator
from forebay.connectors.contract import SourceCheckpoint
from forebay.deadletter.destinations import KafkaDestination
from forebay.deadletter.letter import Letter
from forebay.deadletter.letter_topic import ensure_topic
from forebay.deadletter.policy import ErrorPolicy
from forebay.devstack.guard import USER as NOBODY
from forebay.errors import ForebayError, MissingAclError, from_text
from forebay.kafka.connector import KafkaSource
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.pool import Pool
from forebay.pool.record import Record
from forebay.runtime.session import Session
from forebay.source.treatment import TreatingRouter, Treatment

PAGE = ROOT / "docs" / "how-to" / "secure-brokers.md"
AT_ONCE_S = 12  # on a machine that is busy; what is tried again goes on for a minute
MOST = 20  # errors until a room works
_LINE = re.compile(r"kafka-acls --bootstrap-server \S+ (--add .*?)(?= && |$)")


class Allowed(NamedTuple):
    """One ACL of `User:forebay`."""

    operation: str
    resource: str
    name: str
    prefixed: bool

    @classmethod
    def of(cls, line: str) -> list[Allowed]:
        words = shlex.split(line)
        assert words[words.index("--allow-principal") + 1] == f"User:{NOBODY}"
        prefixed = "prefixed" in words
        operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
        kinds = ("--topic", "--group", "--transactional-id")
        return [
            cls(operation, word, words[place + 1], prefixed)
            for place, word in enumerate(words)
            if word in kinds
            for operation in operations
        ]

    def covers(self, other: Allowed) -> bool:
        same = (self.operation, self.resource) == (other.operation, other.resource)
        return same and (other.name.startswith(self.name) if self.prefixed else self == other)


def page(*headings: str) -> list[str]:
    """The lines of `kafka-acls` that stand under these headings."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = [
        line
        for heading in headings
        for line in re.findall(r"^forebay dev acls (--add .*)$", sections[heading], re.MULTILINE)
    ]
    assert found
    return found


def on_the_page(*headings: str) -> set[Allowed]:
    return {each for line in page(*headings) for each in Allowed.of(line)}


@pytest.fixture
def nobody(guarded: Guarded) -> Iterator[Guarded]:
    """The broker, where `User:forebay` may do nothing, and may do nothing again afterwards."""
    yield guarded
    for line in guarded.acls_of(NOBODY):
        guarded.allow(f"--remove {line}")


def lines_of(error: ForebayError) -> list[str]:
    found = _LINE.findall(error.remedy.partition(" (brokers before")[0])
    assert found, error.remedy
    return found


def allowed_until_it_works(guarded: Guarded, attempt: Callable[[], object]) -> set[Allowed]:
    """Do what each error says, as it is written, until there is none; all that was allowed."""
    allowed: set[Allowed] = set()
    for _ in range(MOST):
        began = time.monotonic()
        error = refusal(attempt)
        if error is None:
            return allowed
        assert time.monotonic() - began < AT_ONCE_S, str(error)
        lines = lines_of(error)
        fresh = {each for line in lines for each in Allowed.of(line)} - allowed
        assert fresh, f"asked for twice: {error}"
        for line in lines:
            guarded.allow(line)
        allowed |= fresh
    raise AssertionError(f"not enough after {MOST} lines: {allowed}")


def refusal(attempt: Callable[[], object]) -> MissingAclError | None:
    """What an attempt is not allowed; any other error is one of the test."""
    try:
        attempt()
    except MissingAclError as error:
        return error
    return None


@pytest.fixture
def topics(guarded: Guarded) -> Iterator[Callable[..., None]]:
    """Makes topics of the page's names; gone after the test, with those that the test has made."""
    before = set(guarded.cluster.admin.list_topics(timeout=10).topics)

    def make(*names: str) -> None:
        for name in names:
            guarded.cluster.make_topic(1, name=name)

    yield make
    for name in set(guarded.cluster.admin.list_topics(timeout=10).topics) - before:
        if not name.startswith("__"):
            guarded.cluster.delete_topic(name)


def options_of(guarded: Guarded, topic: str, **more: str) -> dict[str, str]:
    options = guarded.cluster.kafka_options(topic, bootstrap_servers=guarded.address("scram"))
    return options | guarded.kafka("scram", NOBODY) | {"auto.offset.reset": "earliest", **more}


def read_and_commit(guarded: Guarded) -> None:
    source = kafka_source(options_of(guarded, "orders", **{"group.id": "forebay-orders"}))
    try:
        source.open()
        start = source.initial_offsets()
        end = source.latest_offsets(start, None)
        assert len(read(source, start, end)[0]) == 3
        source.commit_offsets(SourceCheckpoint(end, 0))
    finally:
        source.close()


def test_a_source_needs_what_its_page_says(nobody: Guarded, topics: Callable[..., None]) -> None:
    topics("orders")
    nobody.cluster.produce("orders", numbers(3))
    allowed = allowed_until_it_works(nobody, lambda: read_and_commit(nobody))
    assert allowed == on_the_page("A source")


@pytest.mark.usefixtures("either_decoder")
def test_who_may_only_describe_a_topic_is_told_the_line_to_read_it(
    nobody: Guarded, topics: Callable[..., None]
) -> None:
    topics("orders")
    nobody.cluster.produce("orders", numbers(3))
    nobody.allow(f"--add --allow-principal User:{NOBODY} --operation Describe --topic orders")
    source = kafka_source(options_of(nobody, "orders"))
    source.open()
    began = time.monotonic()
    with pytest.raises(MissingAclError, match="may not read topic 'orders'") as caught:
        list(source.read_batch(KafkaSplit((Range("orders", 0, 0, 3),))))
    assert time.monotonic() - began < AT_ONCE_S
    assert Allowed.of(*lines_of(caught.value)) == [Allowed("Read", "--topic", "orders", False)]


def test_a_reader_that_uses_no_group_needs_none(nobody: Guarded, topics: Callable[..., None]) -> None:
    topics("orders")
    nobody.cluster.produce("orders", numbers(3))
    nobody.allow(f"--add --allow-principal User:{NOBODY} --operation Read --topic orders")
    done = command(nobody, "consume", "orders", "-o", "jsonl")
    assert done.count("\n") == 3


def letter(topic: str) -> Letter:
    return Letter("orders", topic, 0, 0, 1, None, b"bad", (), "Kind", "why", 1, size=3)


def write_letter(guarded: Guarded) -> None:
    options = kafka_source(options_of(guarded, "orders")).options
    ensure_topic(ErrorPolicy("dead_letter", "orders-dlq"), options, 1)
    destination = KafkaDestination("orders", "orders-dlq", options)
    destination.write(letter("orders"))
    destination.flush()


def test_dead_letters_need_what_their_page_says(nobody: Guarded, topics: Callable[..., None]) -> None:
    allowed = allowed_until_it_works(nobody, lambda: write_letter(nobody))
    assert allowed == on_the_page("Its dead letters")
    assert len(nobody.cluster.records("orders-dlq")) == 1


def route(source: KafkaSource, policy: ErrorPolicy) -> None:
    """What a task does with the records of a split."""
    split = KafkaSplit((Range("orders", 0, 0, 1),))
    router = TreatingRouter(source.config, source, split, Treatment(policy, None, {}), "test")
    source.wanted = router.wanted
    for batch in source.read_batch(split):
        router.see(batch)
    router.finish()


@pytest.mark.usefixtures("either_decoder")
def test_who_may_not_write_letters_is_told_the_line_at_once(
    nobody: Guarded, topics: Callable[..., None]
) -> None:
    topics("orders", "orders-dlq")
    nobody.cluster.produce("orders", ["broken"])
    user = f"--add --allow-principal User:{NOBODY} --operation"
    nobody.allow(f"{user} Describe --topic orders-dlq")
    nobody.allow(f"{user} Read --topic orders")
    source = kafka_source(options_of(nobody, "orders"))
    policy = ErrorPolicy("dead_letter", "orders-dlq")
    ensure_topic(policy, source.options, 1)
    began = time.monotonic()
    with pytest.raises(MissingAclError, match="may not write to topic 'orders-dlq'") as caught:
        route(source, policy)
    assert time.monotonic() - began < AT_ONCE_S
    assert Allowed.of(lines_of(caught.value)[0]) == [Allowed("Write", "--topic", "orders-dlq", False)]


def on_pool(guarded: Guarded, **settings: Any) -> Pool:
    reached = {"bootstrap_servers": guarded.address("scram"), "kafka": guarded.client("scram", NOBODY)}
    named = {"topics": ["bills"], "group_id": "billing", "auto_offset_reset": "earliest", "max_attempts": 1}
    return Pool(**reached | named | settings)


def bill_with_letters(guarded: Guarded) -> None:
    pool = on_pool(guarded, dead_letter_topic="bills-dlq")

    def refuse(record: Record) -> None:
        raise ValueError("no bill")

    run(run_until(pool, refuse, lambda: pool.stats().dead_letters == 3))


def bill_in_transactions(guarded: Guarded) -> None:
    pool = on_pool(guarded, group_id="billing", max_errors=0)
    pool.transactional("billing-1")

    async def send(record: Record) -> None:
        record.send("receipts", b"paid")

    run(run_until(pool, send, lambda: len(guarded.cluster.records("receipts")) == 1))


def test_a_pool_needs_what_its_page_says(nobody: Guarded, topics: Callable[..., None]) -> None:
    topics("bills", "receipts")
    nobody.cluster.produce("bills", numbers(3))
    allowed = allowed_until_it_works(nobody, lambda: bill_with_letters(nobody))
    nobody.cluster.produce("bills", numbers(1))
    allowed |= allowed_until_it_works(nobody, lambda: bill_in_transactions(nobody))
    assert allowed == on_the_page("A pool")


def answer_on_a_board(guarded: Guarded) -> None:
    settings: dict[str, Any] = {"kafka": guarded.client("scram", NOBODY), "partitions": 1}

    async def work() -> None:
        async with KafkaBlackboardStore(guarded.address("scram"), transactions=True, **settings) as store:
            team = Orchestrator(store)
            team.subscribe("answering", "Order", lambda order: Artifact("Reply", {}, "answering"))

            async def answered() -> bool:
                return bool(await store.list_by_type("Reply"))

            async def ask() -> None:
                await store.publish(artifact(1))
                await until(answered, "it is answered", 30)

            working, asking = asyncio.ensure_future(team.run()), asyncio.ensure_future(ask())
            try:
                await asyncio.wait([working, asking], return_when=asyncio.FIRST_COMPLETED)
                await (working if working.done() else asking)
            finally:
                asking.cancel()
                await team.stop()

    run(work())


def test_a_blackboard_needs_what_its_page_says(nobody: Guarded, topics: Callable[..., None]) -> None:
    allowed = allowed_until_it_works(nobody, lambda: answer_on_a_board(nobody))
    written = on_the_page("A blackboard")
    assert all(any(line.covers(each) for line in written) for each in allowed)
    assert all(any(line.covers(each) for each in allowed) for line in written)


def command(guarded: Guarded, *arguments: str) -> str:
    """What a command prints, as the user who may do nothing; its error is raised."""
    config = guarded.broker.directory / "nobody.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in guarded.client("scram", NOBODY).items()))
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": guarded.address("scram"),
        "FOREBAY_KAFKA_CONFIG": str(config),
        "COLUMNS": "1000",
        "PATH": os.environ["PATH"],
    }
    done = forebay(*arguments, environment=environment)
    assert guarded.guard.users[NOBODY] not in done.stdout + done.stderr
    if done.returncode:
        found = from_text(done.stderr)
        assert found is not None, done.stderr
        raise found
    return done.stdout


def test_commands_need_what_their_page_says(
    nobody: Guarded, topics: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("{}\n")
    whole = {
        ("topic", "create", "bills"): {"Create"},
        ("topic", "describe", "bills"): {"Describe", "DescribeConfigs"},
        ("produce", "bills", str(tmp_path / "lines")): {"Write"},
        ("consume", "bills"): {"Read"},
        ("topic", "delete", "bills", "--yes"): {"Delete"},
    }
    table = re.findall(r"^\| `forebay ([a-z ]+)` \| (.*) on the topic", PAGE.read_text(), re.MULTILINE)
    for arguments, operations in whole.items():
        allowed = allowed_until_it_works(nobody, lambda arguments=arguments: command(nobody, *arguments))
        assert allowed <= {Allowed(each, "--topic", "bills", False) for each in operations}
        written = next(words for name, words in table if " ".join(arguments).startswith(name))
        assert set(re.findall(r"[A-Z]\w+", written)) == operations


# -- with Spark --------------------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: Guarded) -> Iterator[Session]:
    monkeypatch.setenv("NOBODYS_PASSWORD", guarded.guard.users[NOBODY])
    with sessions.connect(tmp_path / "home") as made:
        yield made


def create_orders(guarded: Guarded) -> str:
    settings = guarded.kafka("scram", NOBODY, sasl_password="${NOBODYS_PASSWORD}")
    given = ", ".join(f"'{key}' = '{text}'" for key, text in settings.items())
    return (
        f"CREATE SOURCE orders (n BIGINT NOT NULL) FROM KAFKA (brokers = '{guarded.address('scram')}', topic = 'orders', "
        f"{given}) FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'orders-dlq')"
    )


def test_a_pipeline_runs_with_what_the_page_says_and_fails_at_once_with_the_line_that_is_taken_away(
    nobody: Guarded, topics: Callable[..., None], session: Session
) -> None:
    topics("orders")
    nobody.cluster.produce("orders", [*numbers(3), "broken"])
    for line in page("A source", "Its dead letters"):
        nobody.allow(line)
    session.execute(create_orders(nobody))
    session.execute("CREATE MATERIALIZED VIEW seen AS SELECT n FROM orders")
    sessions.caught_up(session)
    assert sorted(sessions.rows(session, "SELECT n FROM seen")) == [(0,), (1,), (2,)]
    assert len(nobody.cluster.records("orders-dlq")) == 1
    eventually(lambda: nobody.cluster.committed("forebay-orders", "orders") == {0: 4}, "it is committed")

    replayed = allowed_until_it_works(nobody, lambda: session.dead_letters("orders").replay())
    assert replayed == on_the_page("Replay")
    sessions.caught_up(session)

    write = f"--add --allow-principal User:{NOBODY} --operation Write --topic orders-dlq"
    nobody.allow(write.replace("--add", "--remove"))
    began = time.monotonic()
    nobody.cluster.produce("orders", ["broken again"])
    with pytest.raises(ForebayError) as caught:
        sessions.caught_up(session)
    assert time.monotonic() - began < AT_ONCE_S
    assert "may not write to topic 'orders-dlq'" in str(caught.value)
    assert write in str(caught.value)
