"""`forebay schema` on a real registry."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)

from forebay.devstack.registry_service import RegistryServer
from forebay.devstack.stack import start_all

ID = {"name": "id", "type": "long"}
PRICE = {"name": "price", "type": "int"}
AMOUNT = {"name": "amount", "type": "double", "aliases": ["price"]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    registry = RegistryServer(
        tmp_path_factory.mktemp("registry")
    )  # one of its own: all that is in it is listed
    start_all([registry])
    try:
        with SchemaRegistryClient({"url": registry.url}) as client:
            for text in (record(ID, PRICE), record(ID, AMOUNT, NOTE)):
                client.register_schema("orders-value", Schema(text, "AVRO"))
            client.register_schema("users-value", Schema(record(ID), "AVRO"))
            client.set_config("orders-value", ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
        yield registry.url
    finally:
        registry.stop()


def forebay(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {key: text for key, text in os.environ.items() if not key.startswith("SCHEMA_REGISTRY")}
    return commands.forebay("schema", *arguments, environment=given | environment)


def test_ls_lists_subjects_with_their_newest_version(url: str) -> None:
    found = json.loads(forebay("ls", "--url", url, "-o", "json").stdout)
    assert [(row["subject"], row["versions"], row["newest"], row["type"]) for row in found] == [
        ("orders-value", 2, 2, "AVRO"),
        ("users-value", 1, 1, "AVRO"),
    ]
    assert found[0]["compatibility"] == "BACKWARD"
    assert "users" not in forebay("ls", "orders", SCHEMA_REGISTRY_URL=url).stdout


def test_show_prints_the_schema_alone_to_stdout(url: str) -> None:
    newest = forebay("show", "orders-value", "--url", url)
    assert json.loads(newest.stdout)["fields"] == [ID, AMOUNT, NOTE]
    assert "orders-value version 2" in newest.stderr
    assert json.loads(forebay("show", "orders-value", "-n", "1", "--url", url).stdout)["fields"] == [
        ID,
        PRICE,
    ]
    number = json.loads(forebay("ls", "users", "--url", url, "-o", "json").stdout)[0]["id"]
    assert json.loads(forebay("show", str(number), "--url", url).stdout)["fields"] == [ID]


def test_diff_says_what_changed_field_by_field(url: str) -> None:
    found = forebay("diff", "orders-value", "--url", url, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in found] == [
        {"field": "amount", "before": "int", "after": "double", "note": "renamed from price, by an alias"},
        {"field": "note", "before": "", "after": "null | string", "note": "added, with a default"},
    ]
    backwards = forebay("diff", "orders-value", "2", "1", "--url", url).stdout
    assert "removed" in backwards
    assert "added, without a default" in backwards


def test_check_asks_the_registry_and_ends_with_its_answer(url: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.avsc", tmp_path / "bad.avsc"
    good.write_text(record(ID, AMOUNT, NOTE, NOTE | {"name": "more"}))
    bad.write_text(record({"name": "id", "type": "string"}, AMOUNT, NOTE))
    taken = forebay("check", "orders-value", str(good), "--url", url)
    assert (taken.returncode, "it would be taken (BACKWARD)" in taken.stderr) == (0, True)
    assert "more" in taken.stdout
    refused = forebay("check", "orders-value", str(bad), "--url", url)
    assert (refused.returncode, "it would be refused" in refused.stderr) == (1, True)
    assert "another type" in refused.stdout
    assert len(json.loads(forebay("ls", "orders", "--url", url, "-o", "json").stdout)) == 1
    assert json.loads(forebay("show", "orders-value", "--url", url).stdout)["fields"] == [ID, AMOUNT, NOTE]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "order-value"], 2, "did you mean orders-value"),
        (["show", "orders-value", "-n", "9"], 2, "it has 1, 2"),
        (["check", "orders-value", "nothing.avsc"], 2, "cannot be read"),
        (["ls", "--url", "localhost"], 2, "is not an address"),
        (["ls", "--url", ""], 2, "export SCHEMA_REGISTRY_URL"),
    ],
)
def test_wrong_use_ends_with_two_and_a_remedy(url: str, arguments: list[str], code: int, said: str) -> None:
    ended = forebay(*arguments, SCHEMA_REGISTRY_URL=url)
    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_registry_that_is_away_ends_with_three(url: str) -> None:
    ended = forebay("ls", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 3
    assert "cannot reach the schema registry at http://127.0.0.1:1" in ended.stderr
