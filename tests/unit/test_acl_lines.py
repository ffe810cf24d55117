"""The line that allows what is missing: whose, what, on what, and so that a shell takes it as it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from forebay.devstack.certificates import Authority
from forebay.devstack.grants import Grants
from forebay.errors import MissingAclError, OptionValueError, from_text
from forebay.kafka.missing_acls import (
    CREATE,
    READ,
    WRITE,
    line,
    lines,
    missing,
    on_group,
    on_topics,
    on_transactions,
    principal,
)  # fmt: skip

SASL = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.username": "reader"}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


def refused(code: int, *acls: Any, **settings: str) -> MissingAclError:
    found = missing(KafkaError(code), SASL | settings, acls, "reading")
    assert found is not None
    return found


def test_a_topic_a_group_and_a_transactional_id_have_their_lines() -> None:
    acls = (*on_topics(READ, ["orders"]), on_group("g"), on_transactions("t-", prefixed=True))
    head = "kafka-acls --bootstrap-server b:9092 --add --allow-principal User:reader --operation"
    remedies = [refused(code, *acls).remedy for code in (29, 30, 53)]
    assert remedies == [
        f"an administrator allows it: {head} {words}"
        for words in (
            "Read --topic orders",
            "Read --group g",
            "Write --transactional-id t- --resource-pattern-type prefixed",
        )
    ]


def test_the_broker_says_of_which_kind_the_missing_one_is_and_all_names_are_in_one_line() -> None:
    error = refused(29, *on_topics(READ, "abcde"), on_group("g"))
    assert "may not read topic 'a', 'b', 'c' and 2 more on b:9092, while reading" in error.message
    assert error.remedy.endswith("--operation Read --topic a --topic b --topic c --topic d --topic e")


def test_who_may_not_write_without_duplicates_is_told_to_write_and_what_old_brokers_want() -> None:
    remedy = refused(31, *on_topics(WRITE, ["dlq"])).remedy
    assert "--operation Write --topic dlq (brokers before 2.8" in remedy
    assert remedy.endswith("--operation IdempotentWrite --cluster)")


def test_an_error_of_another_kind_is_no_missing_acl() -> None:
    assert missing(KafkaError(KafkaError.REQUEST_TIMED_OUT), SASL, on_topics(READ, ["t"]), "reading") is None


def test_a_refusal_that_nobody_foresaw_names_the_user_and_the_brokers_words() -> None:
    error = refused(31)
    assert "User:reader is not allowed this on b:9092" in error.message
    assert "CLUSTER_AUTHORIZATION_FAILED (31)" in error.message


def test_the_line_survives_the_text_that_spark_hands_on() -> None:
    error = refused(29, *on_topics(READ, ["orders"]))
    again = from_text(f"org.apache.spark.SparkException: {error}\n\tat x")
    assert isinstance(again, MissingAclError)
    assert again.remedy == error.remedy


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES)
def test_a_shell_reads_every_name_as_it_is(names: list[str], user: str) -> None:
    words = shlex.split(line(SASL | {"sasl.username": user}, on_topics(READ, names)))
    assert words[words.index("--allow-principal") + 1] == f"User:{user}"
    assert words[words.index("Read") + 1 :] == [word for name in names for word in ("--topic", name)]


def test_operations_that_differ_have_a_line_each() -> None:
    found = lines(SASL, [*on_topics(READ, ["a", "b"]), *on_topics(CREATE, ["a"])])
    assert [each.partition("--operation ")[2] for each in found] == [
        "Read --topic a --topic b",
        "Create --topic a",
    ]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "ANONYMOUS"),
        ({"security.protocol": "SSL"}, "ANONYMOUS"),
        ({"security.protocol": "sasl_ssl", "sasl.username": "ann"}, "ann"),
        ({"security.protocol": "SASL_SSL", "sasl.kerberos.principal": "kafka/host@REALM"}, "kafka"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "<who you log in as>"),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/no/such.pem"},
            "<the name in your certificate>",
        ),
    ],
)
def test_who_the_broker_takes_a_client_for(settings: dict[str, str], name: str) -> None:
    assert principal(settings) == f"User:{name}"


def test_who_shows_a_certificate_is_the_name_in_it(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("ann, of accounts")
    tls = {"security.protocol": "SSL"}
    pem, key = files.certificate.read_bytes(), files.key.read_bytes()
    store = tmp_path / "ann.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"ann", serialization.load_pem_private_key(key, None), load_pem_x509_certificate(pem), None,  # type: ignore[arg-type]
            serialization.BestAvailableEncryption(b"secret"),
        )
    )  # fmt: skip
    shown = [
        tls | {"ssl.certificate.location": str(files.certificate)},
        tls | {"ssl.certificate.pem": pem.decode()},
        tls | {"ssl.keystore.location": str(store), "ssl.keystore.password": "secret"},
    ]
    assert {principal(each) for each in shown} == {"User:CN=ann\\, of accounts"}


@pytest.mark.parametrize(
    "words", ["", "--add", "--add --remove", "--add --operation Reed --allow-principal U --topic t"]
)
def test_words_that_are_no_line_of_kafka_acls_are_refused(words: str) -> None:
    with pytest.raises(OptionValueError):
        Grants("127.0.0.1:1", {}).run(words)
