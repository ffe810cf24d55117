"""Brokers and registries that cannot be reached: the error names the cause, the address and what to do, within seconds."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from commands import forebay
from guarded import Guarded
from registry_guard import certificate as pem_certificate
from terminals import terminal

from forebay.errors import AuthError, ConnectorError, ForebayError, UnreachableError, WrongProtocolError
from forebay.kafka.admin import Cluster as Brokers
from forebay.kafka.options import KAFKA
from forebay.registry import RegistrySettings
from forebay.registry.client import RegistryClient

PATIENCE_S = 5.0
GIVEN_UP_S = PATIENCE_S + 4  # a try in flight ends, and a busy machine takes its time
WRONG = "battery-staple"


@pytest.fixture
def silent() -> Iterator[str]:
    """Accepts connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class _Quiet(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with serving() as address:
        yield address


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Quiet)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def failure(options: dict[str, str]) -> ForebayError:
    """What a request fails with, within the five seconds that it is given."""
    given = {"topic": "t", "group.id": "g", "connect.timeout.ms": str(int(PATIENCE_S * 1000))} | options
    cluster = Brokers(KAFKA.bind({key: text for key, text in given.items() if key != "connector"}))
    began = time.monotonic()
    try:
        with pytest.raises(ConnectorError) as caught:
            cluster.brokers()
    finally:
        cluster.close()
    assert time.monotonic() - began < GIVEN_UP_S
    assert caught.value.exit_code == 3
    assert WRONG not in str(caught.value)
    return caught.value


# -- nobody there -------------------------------------------------------------------------------------------------


def test_a_name_that_does_not_resolve() -> None:
    error = failure({"bootstrap.servers": "broker.invalid:9092"})
    assert isinstance(error, UnreachableError)
    assert "at broker.invalid:9092" in error.message
    assert "the name 'broker.invalid' does not resolve" in error.message
    assert "spelled" in error.remedy


def test_a_port_where_nothing_listens(nowhere: str) -> None:
    error = failure({"bootstrap.servers": nowhere})
    assert isinstance(error, UnreachableError)
    assert f"{nowhere} refuses connections (Connection refused)" in error.message
    assert "forebay dev up" in error.remedy


def test_a_listener_that_never_answers(silent: str) -> None:
    error = failure({"bootstrap.servers": silent})
    assert isinstance(error, UnreachableError)
    assert f"{silent} accepts the connection, but does not answer" in error.message
    assert "'kafka.security.protocol'" in error.remedy


def test_of_several_addresses_each_has_its_own_cause(nowhere: str) -> None:
    error = failure({"bootstrap.servers": f"broker.invalid:9092,{nowhere}"})
    assert "does not resolve" in error.message
    assert f"{nowhere} refuses connections" in error.message
    assert "spelled" in error.remedy
    assert "check the port" in error.remedy


# -- somebody else, or another language ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_web_server(web: str, protocol: str) -> None:
    error = failure({"bootstrap.servers": web, "kafka.security.protocol": protocol})
    assert isinstance(error, WrongProtocolError)
    assert f"a web server (HTTP) answers at {web}" in error.message
    assert "'schema.registry.url'" in error.remedy


def test_a_listener_that_speaks_tls_and_a_client_that_does_not(guarded: Guarded) -> None:
    address = guarded.options("tls")["bootstrap.servers"]
    error = failure({"bootstrap.servers": address})
    assert isinstance(error, WrongProtocolError)
    assert f"{address} speaks TLS, and 'kafka.security.protocol' is PLAINTEXT" in error.message
    assert error.remedy == "'kafka.security.protocol' = 'SSL'"


def test_a_listener_that_asks_for_a_login_and_a_client_that_has_none(guarded: Guarded) -> None:
    error = failure({"bootstrap.servers": guarded.cluster.bootstrap_servers})
    assert isinstance(error, WrongProtocolError)
    assert "asks for a login (SASL PLAIN)" in error.message
    assert error.remedy.startswith(
        "'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'PLAIN'"
    )


def test_a_listener_that_speaks_no_tls_and_a_client_that_does(guarded: Guarded) -> None:
    changes = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": WRONG}
    error = failure(guarded.options("plain") | changes)
    assert isinstance(error, WrongProtocolError)
    assert "speaks no TLS, and 'kafka.security.protocol' is SASL_SSL" in error.message
    assert error.remedy == "'kafka.security.protocol' = 'SASL_PLAINTEXT'"


def test_a_listener_without_logins_and_a_client_that_logs_in(guarded: Guarded) -> None:
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "ann", "kafka.sasl.password": WRONG}
    error = failure(guarded.options("tls") | login | {"kafka.security.protocol": "SASL_SSL"})
    assert isinstance(error, WrongProtocolError)
    assert "takes no login" in error.message
    assert error.remedy == "'kafka.security.protocol' = 'SSL'"


# -- not trusted --------------------------------------------------------------------------------------------------


def test_a_certificate_of_an_unknown_authority(guarded: Guarded) -> None:
    error = failure(guarded.options("tls", ssl_ca_location=str(guarded.other_ca)))
    assert isinstance(error, AuthError)
    assert "is not trusted" in error.message
    assert error.remedy.startswith("'kafka.ssl.ca.location' = ")


def test_a_certificate_for_another_name(guarded: Guarded) -> None:
    options = guarded.options("own")
    named = options["bootstrap.servers"].replace("127.0.0.1", "localhost")
    error = failure(options | {"bootstrap.servers": named})
    assert isinstance(error, AuthError)
    assert f"the certificate of {named} is for another name" in error.message


def test_a_wrong_password(guarded: Guarded) -> None:
    error = failure(guarded.options("plain", sasl_password=WRONG))
    assert isinstance(error, AuthError)
    assert f"{guarded.cluster.bootstrap_servers} refused the login" in error.message
    assert "'kafka.sasl.password'" in error.remedy


def test_a_way_to_log_in_that_the_broker_does_not_take(guarded: Guarded) -> None:
    error = failure(guarded.options("plain", sasl_mechanism="SCRAM-SHA-256"))
    assert isinstance(error, AuthError)
    assert error.remedy == "'kafka.sasl.mechanism' = one of those that it takes: PLAIN"


# -- registries ---------------------------------------------------------------------------------------------------


def no_registry(url: str, **more: str) -> ForebayError:
    registry = RegistryClient(RegistrySettings(url=url, patience_s=2.0, **more))
    try:
        with pytest.raises(ForebayError) as caught:
            registry.subjects()
    finally:
        registry.close()
    assert url in caught.value.message
    return caught.value


def test_each_way_not_to_reach_a_registry_has_its_own_words(
    nowhere: str, silent: str, web: str, guarded: Guarded, tmp_path: Path
) -> None:
    error = no_registry("http://registry.invalid:8081")
    assert isinstance(error, UnreachableError)
    assert "the name does not resolve" in error.message
    error = no_registry(f"http://{nowhere}")
    assert "Connection refused" in error.message
    assert "forebay dev up" in error.remedy
    assert "does not answer" in no_registry(f"http://{silent}").message
    assert "does not answer in HTTP" in no_registry(f"http://{guarded.cluster.bootstrap_servers}").message
    assert "does not answer like a schema registry" in no_registry(f"http://{web}").message
    error = no_registry(f"https://{web}")
    assert isinstance(error, WrongProtocolError)
    assert error.remedy == "'schema.registry.url' = 'http://…'"


def test_a_registry_whose_certificate_is_not_trusted_or_for_another_name(tmp_path: Path) -> None:
    pem, key = pem_certificate(tmp_path, "registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with serving(context) as address:
        error = no_registry(f"https://{address}")
        assert isinstance(error, AuthError)
        assert "is not trusted" in error.message
        assert error.remedy.startswith("'schema.registry.ssl.ca.location'")
        named = address.replace("127.0.0.1", "localhost")
        error = no_registry(f"https://{named}", ca=str(pem))
        assert isinstance(error, AuthError)
        assert "is for another name" in error.message
        assert "does not answer in HTTP" in no_registry(f"http://{address}").message


# -- commands -----------------------------------------------------------------------------------------------------


def create_source(address: str) -> str:
    return f"CREATE SOURCE s (n BIGINT) FROM KAFKA (brokers = '{address}', topic = 't') FORMAT JSON;"


COMMANDS = {
    "topic ls": ["topic", "ls", "-b", "{}"],
    "topic create": ["topic", "create", "t", "-b", "{}"],
    "produce": ["produce", "t", "-b", "{}", os.devnull],
    "consume": ["consume", "t", "-b", "{}"],
    "dlq ls": ["dlq", "ls", "--topic", "t", "-b", "{}"],
    "board ls": ["board", "ls", "--brokers", "{}"],
    "board lag": ["board", "lag", "--brokers", "{}"],
    "schema ls": ["schema", "ls", "--url", "http://{}"],
    "sql -e": ["sql", "-e", create_source("{}")],
    "doctor": ["doctor", "-b", "{}"],
}


def test_commands_give_up_after_five_seconds_and_say_why(silent: str, tmp_path: Path) -> None:
    environment = {**os.environ, "FOREBAY_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    forebay("--version", environment=environment)  # what the others are forked from is there now

    def run(name: str) -> tuple[str, float, subprocess.CompletedProcess[str]]:
        began = time.monotonic()
        arguments = [each.format(silent) if "{}" in each else each for each in COMMANDS[name]]
        done = forebay(*arguments, environment=environment, timeout=60)
        return name, time.monotonic() - began, done

    with ThreadPoolExecutor(4) as pool:
        for name, took_s, done in pool.map(run, COMMANDS):
            assert took_s < GIVEN_UP_S, name
            assert done.returncode == (1 if name == "doctor" else 3), done.stderr
            said = " ".join((done.stdout + done.stderr).split())
            assert silent in said
            assert "accepts the connection, but does not answer" in said, name
            assert "reaching" not in said  # that is for a terminal
            assert "trying again" not in said


def test_lag_gives_up_after_five_seconds_and_says_why(guarded: Guarded, silent: str, tmp_path: Path) -> None:
    options = guarded.options("tls")
    given = ", ".join(f"'{key}' = '{text}'" for key, text in options.items() if key != "bootstrap.servers")
    create = f"CREATE SOURCE s (n BIGINT) WITH ('bootstrap.servers' = '${{AT}}', {given});"
    environment = {**os.environ, "FOREBAY_HOME": str(tmp_path), "AT": options["bootstrap.servers"]}
    created = forebay("sql", "-e", create, environment=environment)
    assert created.returncode == 0, created.stderr
    began = time.monotonic()
    done = forebay("lag", environment=environment | {"AT": silent})
    assert time.monotonic() - began < GIVEN_UP_S
    assert done.returncode == 3
    assert "accepts the connection, but does not answer" in " ".join(done.stderr.split())


def test_one_line_counts_the_seconds_in_a_terminal(silent: str, tmp_path: Path) -> None:
    with terminal(tmp_path, "topic", "ls", "-b", silent) as screen:
        screen.expect(f"reaching brokers at {silent} …")
        screen.expect("3 s")
        screen.expect("accepts the connection, but does not answer", timeout=GIVEN_UP_S)
        assert "\n" not in screen.all.split("reaching brokers")[1].split("error")[0].replace("\r\n", "", 1)


def test_the_prompt_comes_back_five_seconds_after_a_source_of_brokers_that_are_away(
    silent: str, tmp_path: Path
) -> None:
    with terminal(tmp_path, "sql") as screen:
        screen.expect("forebay>")
        screen.type(create_source(silent))
        screen.expect("reaching brokers")
        began = time.monotonic()
        screen.expect("accepts the connection, but does not answer")
        assert time.monotonic() - began < GIVEN_UP_S
        screen.expect("forebay>")
