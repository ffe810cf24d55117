"""Where the native reader is, and what happens where it is not."""

from __future__ import annotations

import logging
import pickle
import shutil
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError

from forebay import native
from forebay.kafka.settings import REFUSALS, from_native

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


def test_its_types_are_those_that_mypy_is_given() -> None:
    pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    command = [sys.executable, "-m", "mypy.stubtest", "forebay_native"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_its_error_survives_pickling_and_is_the_librarys() -> None:
    errors = pytest.importorskip(
        "forebay_native.errors", reason="the native reader is not built (make setup)"
    )
    refused = pickle.loads(pickle.dumps(errors.BrokerError(29, "may not", False)))
    assert (refused.code, refused.message, refused.may_pass, str(refused)) == (
        29,
        "may not",
        False,
        "may not",
    )
    error = from_native(refused)
    assert (error.code(), error.str()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, "may not")
    assert from_native(errors.BrokerError(0, "away", True)).code() == KafkaError._MSG_TIMED_OUT
