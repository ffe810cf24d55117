"""The driver's checkpoints over HTTP: what tasks may do there, and who is let in."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forebay.errors import OptionValueError
from forebay.runtime.state_server import PREFIX, StateServer


class Client:
    """Says what Hadoop's client says, as one that is let in."""

    def __init__(self, server: StateServer, url: str) -> None:
        self.address = urlsplit(url).netloc
        self.headers = {server.settings()["dfs.webhdfs.rest-csrf.custom-header"]: '""'}

    def ask(self, method: str, path: Path, op: str, body: Any = None, **query: str) -> tuple[int, bytes]:
        asked = "&".join(f"{name}={value}" for name, value in {"op": op, **query}.items())
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, f"{PREFIX}{path}?{asked}", None, self.headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 307:
                return answer.status, said
            where = urlsplit(answer.headers["Location"])
            connection.request(method, f"{where.path}?{where.query}", body, self.headers, encode_chunked=True)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Client, Path]]:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    server = StateServer("127.0.0.1", "127.0.0.1")
    try:
        yield Client(server, server.url(folder)), folder
    finally:
        server.close()


def test_a_file_is_written_renamed_read_in_part_and_removed(served: tuple[Client, Path]) -> None:
    client, folder = served
    draft, file = folder / "state" / ".1.tmp", folder / "state" / "1"
    content = bytes(range(256)) * 10_000
    parts = iter([content[:70_000], content[70_000:]])  # sent in chunks, as Hadoop's client does
    assert client.ask("PUT", draft, "CREATE", parts, overwrite="true") == (201, b"")
    assert client.ask("PUT", draft, "RENAME", destination=str(file))[0] == 200
    assert file.read_bytes() == content
    assert not draft.exists()
    assert client.ask("GET", file, "OPEN") == (200, content)
    assert client.ask("GET", file, "OPEN", offset="100", length="50") == (200, content[100:150])
    status, found = client.ask("GET", folder / "state", "LISTSTATUS")
    [listed] = json.loads(found)["FileStatuses"]["FileStatus"]
    assert (status, listed["pathSuffix"], listed["length"]) == (200, "1", len(content))
    client.ask("DELETE", folder / "state", "DELETE", recursive="true")
    assert not (folder / "state").exists()


def test_a_file_that_has_the_name_is_replaced_as_on_a_local_disk(served: tuple[Client, Path]) -> None:
    client, folder = served
    for name, content in ("old", b"old"), ("new", b"new"):
        (folder / name).write_bytes(content)
    status, said = client.ask("PUT", folder / "new", "RENAME", destination=str(folder / "old"))
    assert (status, json.loads(said)) == (200, {"boolean": True})
    assert (folder / "old").read_bytes() == b"new"


def test_what_is_not_there_is_said_as_hadoop_says_it(served: tuple[Client, Path]) -> None:
    client, folder = served
    for op in "GETFILESTATUS", "LISTSTATUS", "OPEN":
        status, said = client.ask("GET", folder / "nothing", op)
        assert (status, json.loads(said)["RemoteException"]["exception"]) == (404, "FileNotFoundException")


@pytest.mark.parametrize("name", ["../catalog.db", "..%2Fcatalog.db", "/etc/passwd"])
def test_nothing_else_of_the_machine_is_served(served: tuple[Client, Path], name: str) -> None:
    client, folder = served
    (folder.parent / "catalog.db").write_text("secret")
    status, said = client.ask("GET", Path(f"{folder}/{name}") if name[0] != "/" else Path(name), "OPEN")
    assert status == 403
    assert b"secret" not in said


def test_nobody_is_let_in_who_does_not_know_the_header(served: tuple[Client, Path]) -> None:
    client, folder = served
    (folder / "file").write_text("secret")
    client.headers = {"X-XSRF-HEADER": '""'}
    assert client.ask("GET", folder / "file", "OPEN")[0] == 403
    assert client.ask("DELETE", folder / "file", "DELETE")[0] == 403
    assert (folder / "file").exists()


def test_a_port_that_is_taken_is_named() -> None:
    server = StateServer("127.0.0.1", "127.0.0.1")
    port = urlsplit(server.url(Path("/x"))).port
    assert port is not None
    try:
        with pytest.raises(OptionValueError, match=f"port {port} of 127.0.0.1"):
            StateServer("127.0.0.1", "127.0.0.1", port)
    finally:
        server.close()
