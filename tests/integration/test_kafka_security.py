"""Logging in and TLS on a real broker, by the native reader and by the one in Python."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import inside
import pytest
from guarded import PASSWORD, RECORDS, Guarded
from support import read
from waiting import eventually

from forebay.connectors.contract import SourceCheckpoint
from forebay.devstack.guard import set_password
from forebay.errors import AuthError
from forebay.kafka.connector import KafkaSource
from forebay.kafka.native_reader import NativeReader
from forebay.kafka.offsets import KafkaSplit
from forebay.kafka.rows import RowDecoder
from forebay.native import native

MakeSource = Callable[[dict[str, str]], KafkaSource]
WRONG = "battery-staple"


@pytest.fixture(params=["native", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("FOREBAY_NATIVE", "0" if request.param == "python" else "1")
    native.cache_clear()
    try:
        if request.param == "native" and native() is None:
            pytest.skip("the wheel of the native reader is not installed")
        yield request.param
    finally:
        native.cache_clear()


def fails(action: Callable[[], Any], within_s: float = 10) -> AuthError:
    began = time.monotonic()
    with pytest.raises(AuthError) as caught:
        action()
    assert time.monotonic() - began < within_s  # left to itself the library would try on and on
    assert caught.value.code == "FB3002"
    return caught.value


def read_all(source: KafkaSource, split: KafkaSplit) -> list[int]:
    return [row["n"] for batch in source.read_batch(split) for row in batch.records.to_pylist()]


@pytest.mark.parametrize("kind", ["plain", "plain-tls", "scram", "scram-512", "tls", "mtls"])
def test_every_record_is_read_once(
    guarded: Guarded, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch, kind: str, reader: str
) -> None:
    if reader == "native":
        inside.forbid_the_plain_reader(monkeypatch)  # it must do without
    source = kafka_source(guarded.options(kind))
    source.open()
    opened = NativeReader.open([], RowDecoder(source.config.schema, source.options), source.options)
    assert (opened is not None) is (reader == "native")
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    rows, rejected = read(source, start, end)
    assert sorted(row["n"] for row in rows) == list(range(RECORDS))
    assert rejected == []


def test_a_certificate_that_signed_itself_is_left_to_openssl(
    guarded: Guarded, kafka_source: MakeSource, said: Callable[[], str]
) -> None:
    source = kafka_source(guarded.options("own"))
    assert sorted(read_all(source, guarded.split)) == list(range(RECORDS))
    assert "CaUsedAsEndEntity" in said()


@pytest.mark.parametrize("kind", ["plain", "scram"])
def test_a_wrong_password_fails_soon_and_is_not_told(
    guarded: Guarded, kafka_source: MakeSource, kind: str, reader: str, said: Callable[[], str]
) -> None:
    source = kafka_source(guarded.options(kind, sasl_password=WRONG))
    errors = [fails(source.open), fails(lambda: read_all(source, guarded.split))]
    log = said()
    assert "SASL authentication error" in log  # the library's own words are among what is looked at
    told = log + "".join("".join(traceback.format_exception(error)) for error in errors)
    assert PASSWORD not in told
    assert WRONG not in told


@pytest.mark.parametrize("kind", ["scram", "tls"])
def test_a_certificate_of_an_unknown_authority_is_refused_at_open(
    guarded: Guarded, kafka_source: MakeSource, kind: str
) -> None:
    source = kafka_source(guarded.options(kind, ssl_ca_location=str(guarded.other_ca)))
    assert "certificate verify failed" in fails(source.open).message


@pytest.mark.parametrize("kind", ["scram", "tls"])
def test_a_certificate_of_an_unknown_authority_is_refused_by_a_task(
    guarded: Guarded, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch, kind: str, reader: str
) -> None:
    monkeypatch.setattr("forebay.kafka.native_reader.STALL_S", 3.0)
    source = kafka_source(guarded.options(kind, ssl_ca_location=str(guarded.other_ca)))
    assert "SSL" in fails(lambda: read_all(source, guarded.split)).message


def test_a_password_that_becomes_right_is_right_for_who_failed_with_it_before(
    guarded: Guarded, kafka_source: MakeSource, reader: str
) -> None:
    user = f"late-{reader}"
    source = kafka_source(guarded.options("scram", sasl_username=user))
    fails(lambda: read_all(source, guarded.split))
    set_password(guarded.cluster.admin, user, PASSWORD)

    def let_in() -> list[int]:
        try:
            return read_all(source, guarded.split)
        except AuthError:
            return []

    assert sorted(eventually(let_in, "the new password is known", timeout=5)) == list(range(RECORDS))


def test_a_password_of_the_environment_reads_and_commits_and_is_shown_nowhere(
    guarded: Guarded, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD_OF_ANN", PASSWORD)
    options = guarded.options("scram", sasl_password="${KAFKA_PASSWORD_OF_ANN}")
    source = kafka_source(options)
    source.open()
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert len(read(source, start, end)[0]) == RECORDS
    source.commit_offsets(SourceCheckpoint(end, 0))
    assert guarded.cluster.committed(options["group.id"], guarded.topic) == dict.fromkeys(
        (0, 1), RECORDS // 2
    )
    assert PASSWORD not in repr(source.config) + repr(source.options)


@pytest.mark.parametrize("which", ["topic", "topic.pattern"])
@pytest.mark.parametrize("wrong", [{"sasl_password": WRONG}, {"sasl_username": "bob"}], ids=str)
def test_wrong_credentials_fail_at_once_by_name_and_by_pattern(
    guarded: Guarded, kafka_source: MakeSource, wrong: dict[str, str], which: str
) -> None:
    options = guarded.options("plain", **wrong)
    options[which] = options.pop("topic")
    error = fails(kafka_source(options).open, within_s=5)
    assert guarded.address("plain") in error.message
    assert "Authentication failed" in error.message
    assert WRONG not in str(error)
    assert PASSWORD not in str(error)
    assert error.exit_code == 3
