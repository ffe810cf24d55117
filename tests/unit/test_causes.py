"""What is said of brokers that cannot be reached, from what was found at their addresses and what the client said."""

from __future__ import annotations

import pytest

from forebay.kafka import causes
from forebay.kafka.options import KAFKA
from forebay.kafka.probe import At, Probed, split
from forebay.options import Options


def options(servers: str) -> Options:
    return KAFKA.bind({"bootstrap.servers": servers, "topic": "t", "group.id": "g"})


def test_an_address_that_a_broker_names_and_that_is_not_reached_is_the_brokers_setting() -> None:
    heard = causes.Heard()
    heard.note(
        "inner.invalid:9092/1: Failed to resolve 'inner.invalid:9092': Name or service not known (after 3ms in state CONNECT)"
    )
    found = [
        Probed("outer:9092", At.KAFKA, mechanisms=()),
        Probed("inner.invalid:9092", At.UNRESOLVED, "Name or service not known"),
    ]
    error = causes.unreachable(found, heard, options("outer:9092"), "reading", "no answer")
    assert "a broker names inner.invalid:9092 as its address" in error.message
    assert "does not resolve" in error.message
    assert error.remedy.startswith("'advertised.listeners'")


def test_where_the_addresses_are_well_the_librarys_own_words_are_said_without_its_timing() -> None:
    heard = causes.Heard()
    heard.note("b:9092/bootstrap: Disconnected (after 12ms in state UP, 3 identical error(s) suppressed)")
    found = [Probed("b:9092", At.KAFKA, mechanisms=())]
    error = causes.unreachable(found, heard, options("b:9092"), "reading", "no answer")
    assert error.message == "cannot reach Kafka at b:9092 while reading: b:9092: Disconnected"


def test_one_listener_of_several_that_can_be_talked_to_is_enough_to_go_on() -> None:
    settings = {"security.protocol": "SSL"}
    tls, plain = Probed("a:1", At.KAFKA, tls=True, mechanisms=()), Probed("b:2", At.KAFKA, mechanisms=())
    assert causes.certain([tls, plain], settings, "a:1,b:2", "reading") is None
    assert causes.certain([plain], settings, "b:2", "reading") is not None


def test_a_listener_that_ended_before_it_spoke_of_logins_is_taken_to_want_ours() -> None:
    found = [Probed("a:1", At.KAFKA, tls=True, mechanisms=None)]
    assert causes.certain(found, {"security.protocol": "SASL_SSL"}, "a:1", "reading") is None


@pytest.mark.parametrize(
    ("server", "place"),
    [("h:1", ("h", 1)), ("h", ("h", 9092)), ("[::1]:9093", ("::1", 9093)), ("ssl://h:1", ("h", 1))],
)
def test_an_address_is_a_host_and_a_port(server: str, place: tuple[str, int]) -> None:
    assert split(server) == place
