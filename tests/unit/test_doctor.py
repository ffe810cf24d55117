"""forebay doctor says what is there, line by line, and what to do about the rest."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fresh import Done, forebay

CHECKS = {
    "python", "java", "pyspark", "confluent-kafka", "deltalake", "pyarrow", "native part", "forebay.toml",
    "disk of home", "disk of cache", "brokers", "registry", "clock",
}  # fmt: skip


def by_check(done: Done) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in json.loads(done.out)}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
        monkeypatch.delenv(name, raising=False)


def test_brokers_that_do_not_answer_are_a_failure_with_a_remedy_within_seconds_and_without_spark(
    tmp_path: Path,
) -> None:
    began = time.monotonic()
    done = forebay(tmp_path, "doctor", "-o", "json", "-b", "localhost:1", "--registry", "http://localhost:1")
    assert time.monotonic() - began < 20  # five to ask, and some for a machine with much to do
    found = by_check(done)
    assert (done.code, done.heavy) == (1, [])
    assert set(found) == CHECKS
    assert found["brokers"]["state"] == found["registry"]["state"] == "fail"
    assert "forebay dev up" in found["brokers"]["remedy"]
    assert all(each["remedy"] for each in found.values() if each["state"] != "ok")
    assert {found[name]["state"] for name in ("python", "java", "pyspark", "disk of home")} == {"ok"}


def test_a_java_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    done = forebay(tmp_path, "doctor", "-o", "json", "-b", "localhost:1", PATH="/nowhere", JAVA_HOME="")
    java = by_check(done)["java"]
    assert (done.code, java["state"]) == (1, "fail")
    assert "install a JRE" in java["remedy"]


def test_a_file_that_is_wrong_is_a_line_and_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "forebay.toml").write_text('brokes = "localhost:1"')
    done = forebay(tmp_path, "doctor", "-o", "json", "-b", "localhost:1")
    file = by_check(done)["forebay.toml"]
    assert (done.code, file["state"]) == (1, "fail")
    assert file["remedy"] == "did you mean 'brokers'?"


def test_the_native_part_left_out_is_a_warning(tmp_path: Path) -> None:
    done = forebay(tmp_path, "doctor", "-b", "localhost:1", FOREBAY_NATIVE="0")
    line = next(line for line in done.out.splitlines() if "native part" in line)
    assert line.startswith("warn")
    assert "unset FOREBAY_NATIVE" in done.out


@pytest.mark.parametrize(("ahead_s", "state", "words"), [(0, "ok", "the registry's"), (90, "warn", "behind")])
def test_the_clock_is_compared_with_the_registrys(
    ahead_s: int, state: str, words: str, tmp_path: Path
) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(401)
            self.send_header("Date", formatdate(time.time() + ahead_s, usegmt=True))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        done = forebay(tmp_path, "doctor", "-o", "json", "-b", "localhost:1", "--registry", url)
    finally:
        server.shutdown()
        server.server_close()
    clock = by_check(done)["clock"]
    assert clock["state"] == state
    assert words in clock["found"]
    assert bool(clock["remedy"]) == (state == "warn")
