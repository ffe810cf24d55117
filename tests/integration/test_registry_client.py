"""The registry client on a real registry: who may ask, what is remembered, what is said where nothing comes."""

from __future__ import annotations

import json
import os
import pickle
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import inside
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from registry_guard import PASSWORD, TOKEN, USER, basic, certificate, guard
from support import Stack

from forebay.errors import AuthError, MissingOptionError, OptionValueError, RecordError, UnreachableError
from forebay.registry import RegistrySettings, client, registry
from forebay.registry.client import RegistryClient

ADDRESS = json.dumps(
    {"type": "record", "name": "Address", "namespace": "n", "fields": [{"name": "zip", "type": "string"}]}
)
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "to", "type": "n.Address"}]})


@pytest.fixture(scope="module")
def ids(stack: Stack) -> tuple[int, int]:
    """Of a schema, and of one that refers to it."""
    with SchemaRegistryClient({"url": stack.schema_registry_url}) as asked:
        first = asked.register_schema("address-value", Schema(ADDRESS, "AVRO"))
        reference = SchemaReference("n.Address", "address-value", 1)
        return first, asked.register_schema("orders-value", Schema(ORDER, "AVRO", [reference]))


@pytest.fixture
def url(stack: Stack) -> str:
    return str(stack.schema_registry_url)


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "cache"))


_made: list[RegistryClient] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def asked(url: str, **more: object) -> RegistryClient:
    _made.append(RegistryClient(RegistrySettings(url, patience_s=0.3, **more)))  # type: ignore[arg-type]
    return _made[-1]


def test_a_schema_comes_with_what_it_refers_to(url: str, ids: tuple[int, int]) -> None:
    here = asked(url)
    found = here.schema(ids[1])
    assert (found.type, json.loads(found.text)) == ("AVRO", json.loads(ORDER))
    ((name, text),) = found.references
    assert (name, json.loads(text)) == ("n.Address", json.loads(ADDRESS))
    newest = here.latest("orders-value")
    assert newest is not None
    assert (newest.version, newest.schema.id) == (1, ids[1])
    assert here.latest("nobody") is None


def test_an_id_that_is_not_there_is_looked_for_again_and_then_refused(url: str) -> None:
    here = asked(url)
    started = time.monotonic()
    with pytest.raises(RecordError, match="schema id 4711 is not known") as caught:
        here.schema(4711)
    assert caught.value.kind == "UnknownSchemaId"
    assert url in caught.value.message
    first_s = time.monotonic() - started
    assert first_s >= 0.7  # 100, 200, 400 ms
    again = time.monotonic()
    with pytest.raises(RecordError):
        here.schema(4711)
    assert time.monotonic() - again < first_s / 2  # not once more for every record


def test_a_new_version_is_seen_when_the_old_answer_is_too_old(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = asked(url)
    with SchemaRegistryClient({"url": url}) as hand:
        hand.register_schema("aging", Schema('{"type": "enum", "name": "A", "symbols": ["X"]}', "AVRO"))
        first = here.latest("aging")
        hand.register_schema("aging", Schema('{"type": "enum", "name": "A", "symbols": ["X", "Y"]}', "AVRO"))
    assert first is not None
    assert here.latest("aging") == first
    monkeypatch.setattr(client, "SUBJECT_AGE_S", 0.0)
    second = here.latest("aging")
    assert second is not None
    assert second.version == 2


def test_what_was_heard_goes_on_while_the_registry_is_away_also_in_new_processes(
    url: str, ids: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with guard(url) as address:
        here = asked(address)
        heard = here.schema(ids[1]), here.latest("orders-value")
    monkeypatch.setattr(client, "SUBJECT_AGE_S", 0.0)
    for survivor in (here, asked(address)):  # the second knows nothing but what the first has put down
        assert (survivor.schema(ids[1]), survivor.latest("orders-value")) == heard
        with pytest.raises(RecordError, match="cannot reach") as caught:
            survivor.schema(ids[0])
        assert caught.value.kind == "UnknownSchemaId"
        with pytest.raises(UnreachableError):
            survivor.latest("never-asked")


def test_a_password_and_a_token(url: str, ids: tuple[int, int]) -> None:
    with guard(url, basic(USER, PASSWORD)) as address:
        assert asked(address, username=USER, password=PASSWORD).schema(ids[0]).id == ids[0]
        for wrong in ({}, {"username": USER, "password": "hush"}, {"token": "hush"}):
            with pytest.raises(AuthError, match=r"refused the credentials .*HTTP 401") as caught:
                asked(address, **wrong).check()
            assert "hush" not in str(caught.value)
            with pytest.raises(AuthError):  # never a reason to refuse records
                asked(address, **wrong).schema(ids[0])
    with guard(url, f"Bearer {TOKEN}") as address:
        assert asked(address, token=TOKEN).schema(ids[0]).id == ids[0]
        with pytest.raises(AuthError):
            asked(address, token="hush").check()


def test_tls_and_a_clients_own_certificate(url: str, ids: tuple[int, int], tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "server")
    mine, my_key = certificate(tmp_path, "me", "hush")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    own = {"certificate": str(mine), "key": str(my_key), "key_password": "hush"}
    with guard(url, tls=context) as address:
        assert asked(address, ca=str(pem)).schema(ids[0]).id == ids[0]
        with pytest.raises(AuthError, match="is not trusted") as caught:
            asked(address).check()
        assert "ssl.ca.location" in caught.value.remedy
    context.load_verify_locations(mine)
    context.verify_mode = ssl.CERT_REQUIRED
    with guard(url, tls=context) as address:
        assert asked(address, ca=str(pem), **own).schema(ids[0]).id == ids[0]
        with pytest.raises((AuthError, UnreachableError)):  # some servers only hang up
            asked(address, ca=str(pem)).check()
        with pytest.raises(OptionValueError, match=r"ssl\.c.*cannot be used"):
            asked(address, ca=str(pem), **(own | {"key_password": "wrong"}))


def test_settings_are_checked_and_show_no_secret() -> None:
    for wrong in ("me:hush@host:8081", "http://me:hush@host:8081"):
        with pytest.raises(OptionValueError, match=r"'schema\.registry\.url'") as caught:
            RegistrySettings(wrong)
        assert "hush" not in str(caught.value)
    with pytest.raises(MissingOptionError, match=r"needs 'schema\.registry\.username'"):
        RegistrySettings("http://h", password="hush")
    with pytest.raises(MissingOptionError, match=r"ssl\.certificate\.location"):
        RegistrySettings("http://h", key="k.pem")
    settings = RegistrySettings(
        "http://h:1/x, http://h:2", username="me", password="hush", ca="ca.pem", key_password="hush"
    )
    assert "hush" not in repr(settings) + repr(RegistrySettings("http://h", token="hush"))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_process_has_one_client_for_the_same_settings(url: str) -> None:
    assert registry(RegistrySettings(url)) is registry(RegistrySettings(url))
    assert registry(RegistrySettings(url)) is not registry(RegistrySettings(url, username="other"))
    assert os.getpid() in inside.processes_with_registries()
