"""A place in an object store is used as a folder is, on a real S3 server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from s3 import S3Server, s3_server

from forebay.errors import StorageError
from forebay.object_path import (
    ObjectPath,
    TablePath,
    files_in,
    parquet_file,
    parquet_writer,
    remove_table,
    take_settings,
)

NAMES = st.sampled_from(["a.json", "b.json", "c.parquet", "d"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "unlink", "read", "stat", "list", "exists"]), NAMES, st.binary(max_size=20)
    )
)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for key, value in server.environment.items():
            patch.setenv(key, value)
        yield server


def done(folder: TablePath, step: str, name: str, data: bytes) -> object:
    """What a step gives, or the kind of its error."""
    file = folder / name
    try:
        match step:
            case "write":
                file.write_bytes(data)
                return None
            case "unlink":
                return file.unlink(missing_ok=True)
            case "read":
                return file.read_bytes()
            case "stat":
                return file.stat().st_size
            case "exists":
                return file.exists()
            case _:
                return [each.name for each in files_in(folder, "*.json")]
    except OSError as error:
        return type(error)


@given(steps=STEPS)
@settings(max_examples=15)
def test_it_answers_as_a_folder_does(
    s3: S3Server, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bytes]]
) -> None:
    there = ObjectPath(s3.url(f"as-a-folder/{uuid.uuid4()}"))
    here = tmp_path_factory.mktemp("here")
    for step in steps:
        assert done(there, *step) == done(here, *step), step
    remove_table(there)
    assert not there.exists()


def test_one_of_two_creates_it_and_a_change_is_seen_by_its_tag(s3: S3Server) -> None:
    entry = ObjectPath(s3.url(f"{uuid.uuid4()}/0.json"))
    entry.create(b"first")
    with pytest.raises(FileExistsError):
        entry.create(b"second")
    tag = entry.stat().e_tag
    entry.replace_if(b"third", tag)
    with pytest.raises(FileExistsError):
        entry.replace_if(b"fourth", tag)
    assert entry.read_bytes() == b"third"


@pytest.mark.parametrize("rows", [10, 3_000_000])
def test_parquet_is_written_in_parts_and_read_back(s3: S3Server, rows: int) -> None:
    path = ObjectPath(s3.url(f"{uuid.uuid4()}/file.parquet"))
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    with parquet_writer(path, table.schema, compression="none", use_dictionary=False) as writer:
        writer.write_table(table, row_group_size=1_000_000)
    with parquet_file(path) as file:
        assert file.read().equals(table)


def test_what_a_store_refuses_is_said_in_words(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="no such bucket"):
        ObjectPath("s3://nobody-made-it/x").write_bytes(b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StorageError, match=r"the store does not (know this key|allow it)") as caught:
        ObjectPath(s3.url("x")).write_bytes(b"")
    assert "another" not in str(caught.value)


def test_a_worker_takes_what_it_is_given_unless_its_own_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "own")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    take_settings(
        {"AWS_REGION": "given", "AWS_ENDPOINT_URL": "http://given", "AWS_SESSION_TOKEN": "of today"}
    )
    assert (os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"]) == ("own", "http://given")
    take_settings({"AWS_REGION": "given", "AWS_SESSION_TOKEN": "of tomorrow"})
    assert os.environ["AWS_SESSION_TOKEN"] == "of tomorrow"
    assert "AWS_ENDPOINT_URL" not in os.environ
    take_settings({})
    assert os.environ["AWS_REGION"] == "own"
    assert "AWS_SESSION_TOKEN" not in os.environ
