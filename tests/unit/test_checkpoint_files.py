"""Spark's checkpoint files, whole and damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import CheckpointError
from forebay.runtime import checkpoints

FILES = {
    "metadata": b'{"id":"8ec1"}',
    "offsets/6": b'v1\n{"batchWatermarkMs":0}\n{"source": "s", "next": {"t": {"0": 5}}}',
    "offsets/7": b'v1\n{"batchWatermarkMs":0}\n{"source": "s", "next": {"t": {"0": 9}}}',
    "offsets/8": b'v1\n{"batchWatermarkMs":0}\n{"source": "s", "next": {"t": {"0": 12}}}',
    "commits/7": b'v1\n{"nextBatchWatermarkMs":0}',
}
NEEDED = ("metadata", "offsets/7", "offsets/8", "commits/7")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    for name, content in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_a_whole_checkpoint_is_taken_and_says_where_it_stands(whole: Path, tmp_path: Path) -> None:
    checkpoints.check(whole)
    checkpoints.check(tmp_path / "none")
    found = checkpoints.committed(whole)
    assert found is not None
    assert (found.query_id, found.batch, found.offsets[0]["next"]) == ("8ec1", 7, {"t": {"0": 9}})


@given(st.sampled_from(NEEDED), st.one_of(st.binary(max_size=40), st.integers(0, 60)))
def test_whatever_is_in_a_file_it_is_taken_as_it_was_or_refused_by_its_name(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, name: str, damage: bytes | int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "checkpoint"
    shutil.copytree(whole, path)
    (path / name).write_bytes(FILES[name][:damage] if isinstance(damage, int) else damage)
    error: CheckpointError | None = None
    try:
        checkpoints.check(path)
    except CheckpointError as raised:
        error = raised
    if error is not None:
        assert str(path / name) in error.message
        assert "this file" in error.remedy
    else:
        content = (path / name).read_bytes().decode()
        assert isinstance(json.loads(content.splitlines()[-1]), dict)


def test_a_file_of_long_ago_that_nobody_needs_may_be_damaged(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "offsets" / "6").write_bytes(b"")
    checkpoints.check(tmp_path / "checkpoint")
