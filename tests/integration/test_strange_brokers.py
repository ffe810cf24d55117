"""Brokers that answer with nothing, with errors, or in formats of another time: shown by a small protocol server."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import inside
import pyarrow as pa
import pytest
from protocol_server import (
    AUTHENTICATE,
    FETCH,
    HANDSHAKE,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    VERSIONS,
    Answer,
    Fetch,
    ProtocolServer,
    batch,
    old_batch,
)
from support import kafka_source, numbers

from forebay.errors import (
    AuthError,
    ConnectorError,
    ForebayError,
    MissingAclError,
    OffsetOutOfRangeError,
    ReadStalledError,
    UnknownTopicError,
)
from forebay.formats.contract import NativeFormat
from forebay.kafka import native_reader, reader
from forebay.kafka.consumers import CACHE
from forebay.kafka.offsets import KafkaSplit, Range
from forebay.native import native

READERS = ["native", "plain"]
FIRST, SECOND = batch(0, numbers(100)), batch(100, numbers(100, 100))
ALL = list(range(200))


@pytest.fixture
def server() -> Iterator[ProtocolServer]:
    with ProtocolServer(log=[FIRST, SECOND]) as running:
        yield running


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    inside.forget_what_was_said()
    yield
    native.cache_clear()
    CACHE.close()  # they would look for a server that is gone


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes one of the two readers read, and no other."""

    def chosen(which: str) -> None:
        if which == "plain":
            monkeypatch.setenv("FOREBAY_NATIVE", "0")
            native.cache_clear()
        else:
            pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
            inside.forbid_the_plain_reader(monkeypatch)

    return chosen


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets a reader stall after so many seconds, and look where the log begins and ends twice in that time."""

    def told(stall_s: float) -> None:
        for module in (native_reader, reader):
            monkeypatch.setattr(module, "STALL_S", stall_s)
            monkeypatch.setattr(module, "LOOK_S", stall_s / 3)

    return told


def read(server: ProtocolServer, end: int = 200, **more: str) -> list[int]:
    options = {"bootstrap.servers": server.bootstrap_servers, "topic": server.topic, "group.id": "g"}
    source = kafka_source(options | {"format": "json"} | more)
    try:
        batches = list(source.read_batch(KafkaSplit((Range(server.topic, 0, 0, end),))))
    finally:
        source.close()
    return [row["n"] for found in batches for row in found.records.to_pylist()]


def first_then(answer: Callable[[Fetch], Answer | None]) -> Callable[[Fetch], Answer | None]:
    """The first hundred records, and this answer to who asks for more."""
    return lambda fetch: Answer(FIRST[1]) if fetch.offset < 100 else answer(fetch)


# -- an empty answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", READERS)
@pytest.mark.parametrize("high", [200, 1000])
def test_an_empty_answer_is_not_a_gap(
    server: ProtocolServer, choose: Callable[[str], None], which: str, high: int
) -> None:
    choose(which)
    server.end = high
    server.on_fetch = first_then(lambda fetch: Answer(high=high) if fetch.before < 4 else None)
    assert read(server) == ALL


@pytest.mark.parametrize("which", READERS)
def test_a_broker_that_answers_with_nothing_for_good_stalls_the_range_and_is_named(
    server: ProtocolServer, choose: Callable[[str], None], impatient: Callable[[float], None], which: str
) -> None:
    choose(which)
    impatient(2)
    server.on_fetch = first_then(lambda _: Answer())
    with pytest.raises(ReadStalledError) as caught:
        read(server)
    assert "t-0 [100, 200)" in caught.value.message
    assert server.bootstrap_servers in caught.value.message
    assert caught.value.retryable
    if which == "native":
        assert "empty answer" in caught.value.message
        assert "its end is said to be 200" in caught.value.message
        assert server.count(FETCH) < 15


@pytest.mark.parametrize("answer", [FIRST[1], SECOND[1][:-1], None], ids=["old", "cut off", "silent"])
def test_an_answer_that_does_not_go_on_is_asked_for_again_with_pauses(
    server: ProtocolServer,
    choose: Callable[[str], None],
    impatient: Callable[[float], None],
    answer: bytes | None,
) -> None:
    choose("native")
    impatient(2)
    silent = Answer(raw=b"\0" * 14)
    server.on_fetch = first_then(lambda _: silent if answer is None else Answer(answer))
    with pytest.raises(ReadStalledError, match=r"t-0 \[100, 200\)"):
        read(server)
    assert server.count() < 40


@pytest.mark.parametrize("which", READERS)
@pytest.mark.parametrize(("start", "end", "gone"), [(150, 200, "[100, 150)"), (0, 100, "[100, 200)")])
def test_records_that_are_gone_behind_empty_answers_are_a_loss_with_the_range(
    server: ProtocolServer,
    choose: Callable[[str], None],
    impatient: Callable[[float], None],
    which: str,
    start: int,
    end: int,
    gone: str,
) -> None:
    choose(which)
    impatient(6)

    def answer(_: Fetch) -> Answer:
        server.start, server.end = start, end
        return Answer(error=0 if end == 100 or which == "native" else 1)  # as librdkafka has to hear it

    server.on_fetch = first_then(answer)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(server)
    assert f"records are gone before they were read: t-0 {gone}" in caught.value.message


# -- errors -------------------------------------------------------------------------------------------------------

LASTING: list[tuple[int, type[ForebayError], str]] = [
    (2, ConnectorError, "CORRUPT_MESSAGE"),
    (3, UnknownTopicError, "UNKNOWN_TOPIC_OR_PARTITION"),
    (29, MissingAclError, "TOPIC_AUTHORIZATION_FAILED"),
    (31, MissingAclError, "CLUSTER_AUTHORIZATION_FAILED"),
    (58, AuthError, "SASL_AUTHENTICATION_FAILED"),
    (87, ConnectorError, "INVALID_RECORD"),
]


@pytest.mark.parametrize(("code", "error", "name"), LASTING, ids=[name for *_, name in LASTING])
@pytest.mark.parametrize("which", READERS)
def test_an_error_that_does_not_pass_ends_the_read_with_its_name_and_number(
    server: ProtocolServer,
    choose: Callable[[str], None],
    which: str,
    code: int,
    error: type[ForebayError],
    name: str,
) -> None:
    choose(which)

    def answer(_: Fetch) -> Answer:
        if code == 3:
            server.errors[METADATA] = code  # librdkafka believes it of a topic only
        return Answer(error=code)

    server.on_fetch = first_then(answer)
    with pytest.raises(error) as caught:
        read(server)
    assert type(caught.value) is error
    assert not caught.value.retryable
    assert f"({code})" in caught.value.message
    assert which == "plain" or f"{name} ({code}): " in caught.value.message
    assert "reading t" in caught.value.message
    assert which == "plain" or server.count(FETCH) < 15


@pytest.mark.parametrize("api", [METADATA, LIST_OFFSETS])
@pytest.mark.parametrize(("code", "error"), [(29, MissingAclError), (87, ConnectorError)])
def test_an_error_about_the_topic_or_its_offsets_ends_the_read_too(
    server: ProtocolServer,
    choose: Callable[[str], None],
    impatient: Callable[[float], None],
    api: int,
    code: int,
    error: type[ForebayError],
) -> None:
    choose("native")
    impatient(6)
    server.errors[api] = code
    server.on_fetch = first_then(lambda _: Answer())  # which makes the reader ask for offsets
    with pytest.raises(error, match=rf"\({code}\)") as caught:
        read(server)
    assert type(caught.value) is error
    assert server.count() < 40


@pytest.mark.parametrize("code", [33, 34, 58])
def test_a_login_that_is_refused_is_an_auth_error_with_its_name(
    server: ProtocolServer, choose: Callable[[str], None], code: int
) -> None:
    choose("native")
    server.errors[HANDSHAKE if code == 33 else AUTHENTICATE] = code
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    with pytest.raises(AuthError, match=rf"[A-Z_]+ \({code}\)"):
        read(server, **{f"kafka.{key}": text for key, text in (login | {"sasl.password": "secret"}).items()})
    assert server.count() < 10


@pytest.mark.parametrize("code", [-1, 5, 6, 7, 9, 13, 56, 74, 75, 78])
def test_an_error_that_passes_is_waited_for(
    server: ProtocolServer, choose: Callable[[str], None], code: int
) -> None:
    choose("native")
    server.on_fetch = first_then(lambda fetch: Answer(error=code) if fetch.before < 3 else None)
    assert read(server) == ALL


@pytest.mark.parametrize(("code", "name"), [(1, "OFFSET_OUT_OF_RANGE"), (6, "NOT_LEADER_OR_FOLLOWER")])
def test_an_error_that_should_pass_and_does_not_is_asked_again_with_pauses_and_named(
    server: ProtocolServer,
    choose: Callable[[str], None],
    impatient: Callable[[float], None],
    code: int,
    name: str,
) -> None:
    choose("native")
    impatient(3)
    server.on_fetch = first_then(lambda _: Answer(error=code))
    with pytest.raises(ReadStalledError, match=rf"t-0 \[100, 200\).*{name} \({code}\): "):
        read(server)
    assert server.count(FETCH) < 15
    assert server.count() < 80
    times = [at for at, api in server.requests if api == FETCH][2:]  # the second try is at once
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.04


def test_the_plain_reader_too_pauses_before_it_asks_again_for_an_offset_that_the_broker_has(
    server: ProtocolServer, choose: Callable[[str], None], impatient: Callable[[float], None]
) -> None:
    choose("plain")
    impatient(3)
    server.on_fetch = first_then(lambda _: Answer(error=1))
    with pytest.raises(ReadStalledError, match=r"t-0 \[100, 200\).*[(]1[)]|t-0 \[100, 200\).*out of range"):
        read(server)
    assert server.count(FETCH) < 15


# -- what the native reader does not speak ------------------------------------------------------------------------


def unread(_: Fetch) -> Answer:
    return Answer(
        raw=b"\0" * 10 + b"\x00\x00\x00\x01\x7f\xff"
    )  # a topic whose name is longer than the answer


FOREIGN: dict[str, tuple[Callable[[ProtocolServer], None], str]] = {
    "format 0": (lambda s: setattr(s, "log", [old_batch(0, numbers(200), 0)]), "message format 0"),
    "format 1": (lambda s: setattr(s, "log", [old_batch(0, numbers(200), 1)]), "message format 1"),
    "an older fetch": (lambda s: s.versions.update({FETCH: (4, 10)}), "Fetch from version 4 up to version 10"),
    "older metadata": (lambda s: s.versions.update({METADATA: (0, 3)}), "Metadata from version 0 up to version 3"),
    "an old format later": (lambda s: setattr(s, "log", [FIRST, old_batch(100, numbers(100, 100), 1)]), "format 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
def test_what_the_native_reader_does_not_speak_is_read_by_librdkafka_and_said_once(
    server: ProtocolServer, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    change, why = FOREIGN[what]
    change(server)
    with caplog.at_level(logging.WARNING, "forebay.native"):
        assert read(server) == ALL
        assert read(server) == ALL
    (said,) = [record.getMessage() for record in caplog.records if record.name == "forebay.native"]
    assert why in said


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(error=35), r"UNSUPPORTED_VERSION \(35\)"),
        (Answer(error=76), r"UNSUPPORTED_COMPRESSION_TYPE \(76\)"),
        (Answer(error=4711), "error 4711"),
        (unread(Fetch(0, 0)), "an answer"),
        (Answer(batch(100, numbers(100, 100), attributes=5)[1]), "compressed by method 5"),
        (Answer(b"\0" * 16 + b"\x03" + b"\0" * 100), "message format 3"),
    ],
    ids=["35", "76", "an unknown error", "an unknown answer", "an unknown compression", "a later format"],
)
def test_what_is_unknown_is_left_to_librdkafka_from_where_reading_stopped(
    server: ProtocolServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: Answer,
    why: str,
) -> None:
    pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    left: list[Any] = []

    def look(ranges: Any) -> None:
        server.on_fetch = lambda _: None  # this one understands it
        left.extend(ranges)

    inside.watch_the_plain_reader(monkeypatch, look)
    server.on_fetch = first_then(lambda _: answer)
    with caplog.at_level(logging.WARNING, "forebay.native"):
        assert read(server) == ALL
    assert left == [Range("t", 0, 100, 200)]
    assert len([record for record in caplog.records if record.name == "forebay.native"]) == 1
    assert re.search(why, caplog.text)


def test_damage_is_an_error_and_nothing_that_librdkafka_is_asked_to_read(
    server: ProtocolServer, choose: Callable[[str], None]
) -> None:
    """It does not look at checksums."""
    choose("native")
    damaged = bytearray(SECOND[1])
    damaged[-3] ^= 1
    server.log = [FIRST, (200, bytes(damaged))]
    with pytest.raises(ConnectorError, match="damaged batch at offset 100: its checksum is wrong"):
        read(server)


def native_reader_of(module: Any, server: ProtocolServer, end: int, **bounds: int) -> Any:
    """The native reader itself, on the records before this offset."""
    schema = pa.schema([pa.field("n", pa.int64())])
    settings = [("bootstrap.servers", server.bootstrap_servers)]
    form = NativeFormat("json", schema, {})
    found = module.Reader(settings, form, None, schema, ["0"], longest=1 << 20, **bounds)
    found.add(server.topic, 0, 0, end)
    return found


# -- letters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("produce", "error"), [((0, 6), 0), ((0, 7), 35)], ids=["an older version", "refused"]
)
def test_letters_that_cannot_be_sent_from_native_code_are_handed_back(
    server: ProtocolServer, produce: tuple[int, int], error: int
) -> None:
    module = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    server.versions = VERSIONS | {PRODUCE: produce}
    server.on_produce = lambda: error
    server.log = [batch(0, [b"x"] * 5)]
    settings = [("bootstrap.servers", server.bootstrap_servers)]
    letters = module.Letters(
        settings, server.topic, "s", carries_value=True, most=1 << 20, patience_ms=5000, topic_ids={}
    )
    found = native_reader_of(module, server, 5, max_rows=10, max_bytes=1 << 20)
    found.letters(letters)
    while not found.done:
        found.read(1000)
    assert letters.grant(5) == []
    while letters.flush(500):
        pass
    assert len(letters.returned()) == 5


# -- bounds -------------------------------------------------------------------------------------------------------


def test_a_budget_below_a_record_burns_no_core(server: ProtocolServer) -> None:
    """However little a batch may hold: one record makes it full, none does not."""
    module = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    found = native_reader_of(module, server, 200, max_rows=1000, max_bytes=0)
    reads = 0
    while not found.done and reads < 300:
        found.read(1000)
        reads += 1
    assert found.done
    assert reads <= 200
