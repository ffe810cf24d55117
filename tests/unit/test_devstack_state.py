"""What `forebay dev` remembers, and what the broker is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from forebay.devstack import daemon, kraft, state
from forebay.devstack.ports import HOST, free_ports, is_free
from forebay.devstack.state import ServiceState
from forebay.errors import StackError
from forebay.jvm.classes import MAGIC, ClassArchive
from forebay.jvm.java import Java


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREBAY_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def this_process() -> ServiceState:
    started = psutil.Process().create_time()
    return ServiceState(os.getpid(), started, "-Dforebay.stack=none", 1, "/log", "/data")


def test_a_process_is_recognised_by_pid_and_start() -> None:
    found = this_process().process()
    assert found is not None
    assert found.pid == os.getpid()


def test_a_recycled_pid_is_not_taken_for_the_server() -> None:
    assert replace(this_process(), create_time=this_process().create_time - 60).process() is None


def test_a_pid_that_is_gone_is_not_running() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert replace(this_process(), pid=child.pid).process() is None


def test_a_clock_that_was_set_does_not_hide_the_server() -> None:
    marker = "-Dforebay.stack=abc"
    with subprocess.Popen([sys.executable, "-c", "input()", marker], stdin=subprocess.PIPE) as child:
        entry = replace(this_process(), pid=child.pid, create_time=0.0, marker=marker)
        # Until exec the child still shows this process's command line.
        while entry.process() is None and child.poll() is None:
            pass
        assert entry.process() is not None
        child.kill()


def test_down_never_ends_a_process_that_inherited_the_pid() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        state.save({"broker": replace(this_process(), pid=stranger.pid, create_time=1.0)})
        assert daemon.down() == []
        assert stranger.poll() is None
        stranger.kill()
    assert state.load() == {}


def test_what_is_saved_is_loaded() -> None:
    services = {"broker": this_process(), "registry": replace(this_process(), port=2)}
    state.save(services)
    assert state.load() == services
    assert daemon.status().bootstrap_servers == f"{HOST}:1"


@pytest.mark.parametrize("text", ["{", "[]", '{"services": {"broker": {"pid": "1"}}}', '{"services": 3}'])
def test_a_damaged_state_file_is_an_error_with_a_remedy(state_dir: Path, text: str) -> None:
    state_dir.mkdir()
    (state_dir / "stack.json").write_text(text)
    with pytest.raises(StackError, match="damaged"):
        state.load()


def test_properties_are_escaped_for_java_and_private(tmp_path: Path) -> None:
    path = tmp_path / "p"
    kraft.write_properties(path, {"a b": " lead", "back": "x\\y\nz", "umlaut": "ü𝄞"})
    assert path.read_text() == "a\\ b=\\ lead\nback=x\\\\y\\nz\numlaut=\\u00fc\\ud834\\udd1e\n"
    assert path.stat().st_mode & 0o077 == 0


def test_storage_is_formatted_from_a_template_with_ids_of_its_own_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"feature levels")
    no_java = Java("/no/java", 17, "is needed")  # the template is there
    ids = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        kraft.format_storage(folder, tmp_path, no_java)
        assert (folder / "bootstrap.checkpoint").read_bytes() == b"feature levels"
        ids.append(dict(line.split("=") for line in (folder / "meta.properties").read_text().split()))
        kraft.format_storage(folder, tmp_path, no_java)
        assert dict(line.split("=") for line in (folder / "meta.properties").read_text().split()) == ids[-1]
    own = {entry[key] for entry in ids for key in ("cluster.id", "directory.id")}
    assert len(own) == 4
    assert {(entry["version"], entry["node.id"]) for entry in ids} == {("1", "1")}


def test_free_ports_are_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        assert not is_free(server.getsockname()[1])


def test_ports_that_are_given_away_are_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([20_001, 20_002, 20_001, 20_003])
    monkeypatch.setattr("forebay.devstack.ports._random.randrange", lambda *_: next(drawn))
    monkeypatch.setattr("forebay.devstack.ports.is_free", lambda _: True)
    assert free_ports(2, {20_001}) == [20_002, 20_003]


def test_a_class_archive_is_used_only_when_it_was_written_to_its_end(tmp_path: Path) -> None:
    java = Java("java", 17, "words")
    first = ClassArchive(tmp_path, java)
    [flag] = first.flags()
    draft = Path(flag.removeprefix("-XX:ArchiveClassesAtExit="))
    draft.write_bytes(bytes(64) + b"classes")  # the header is still to come
    assert first.flags()[0].startswith("-XX:ArchiveClassesAtExit=")
    assert draft.exists()  # it may be in the making

    draft.write_bytes(MAGIC + bytes(60) + b"classes")
    assert first.flags() == [f"-XX:SharedArchiveFile={first.path}"]
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    assert ClassArchive(tmp_path, Java("java", 21, "other words")).path != first.path


def test_what_a_killed_jvm_left_of_a_class_archive_is_removed(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, Java("java", 17, "words"))
    torso = Path(archive.flags()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    torso.write_bytes(bytes(64))
    os.utime(torso, (0, 0))
    archive.flags()
    assert not torso.exists()
