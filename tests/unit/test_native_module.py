"""Where the native reader is, and what happens where it is not."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError

from forebay import native
from forebay.kafka.settings import REFUSALS

CODE = """
import logging, sys
logging.basicConfig()
sys.modules["forebay_native"] = None  # as if it were not installed
from forebay.native import native
assert native() is None and native() is None
"""


def test_it_is_built_where_cargo_is() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("no cargo on this machine")
    assert native.native() is not None, "run make setup: it says why the crate could not be built"


def test_one_line_says_that_it_is_absent() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr.count("the native reader is not installed") == 1


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("FOREBAY_NATIVE", "0")
    native.native.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert native.native() is None
        assert caplog.text == ""
    finally:
        monkeypatch.undo()
        native.native.cache_clear()


def test_it_speaks_of_refusals_by_the_librarys_numbers() -> None:
    module = native.native()
    if module is None:
        pytest.skip("the native reader is not built")
    assert module.REFUSALS == (KafkaError._AUTHENTICATION, KafkaError._SSL)
    assert set(module.REFUSALS) <= set(REFUSALS)
    assert module.UNSUPPORTED == KafkaError._UNSUPPORTED_FEATURE
