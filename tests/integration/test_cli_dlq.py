"""`forebay dlq` as a person or a script calls it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path

import fresh
import letters as make
import pytest
from commands import forebay
from letters import BINARY, BROKEN, NO_ID, TEXT_PRICE, Case
from sessions import connect, create_source, name
from support import Cluster
from typer.testing import CliRunner

from forebay.catalog import BatchRecord, Catalog
from forebay.cli.dlq import dlq_app
from forebay.connectors.contract import Stretch


class Home:
    """A home with a source that has letters, and one that writes none."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case = case
        self.path = path

    def run(self, *arguments: str, status: int = 0, cwd: Path | None = None) -> str:
        done = self.both(*arguments, status=status, cwd=cwd)
        return done.stdout if status == 0 else done.stderr

    def both(
        self, *arguments: str, status: int = 0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "FOREBAY_HOME": str(self.path), "COLUMNS": "160", "NO_COLOR": "1"}
        done = forebay("dlq", *arguments, environment=environment, cwd=cwd)
        assert done.returncode == status, done.stdout + done.stderr
        return done


@pytest.fixture
def home(cluster: Cluster, tmp_path: Path) -> Home:
    case = make.case(cluster)
    with connect(tmp_path / "home") as session:
        session.execute(case.statement())
        session.execute(create_source(cluster, name("skips"), case.topic, make.COLUMNS))
        case.fail(session, [BROKEN, NO_ID, TEXT_PRICE, BINARY], key=b"k")
    return Home(case, tmp_path / "home")


def test_ls_lists_the_newest_letters(home: Home) -> None:
    table = home.run("ls")
    assert all(kind in table for kind in ("MalformedPayload", "SchemaMismatch", "TypeConversion"))
    found = json.loads(home.run("ls", "-o", "json", "--where", "error_kind = 'TypeConversion'"))
    assert [(row["value"], row["field"], row["state"]) for row in found] == [
        (TEXT_PRICE.decode(), "price", "open")
    ]
    lines = home.run("ls", "-s", home.case.source, "-o", "jsonl", "--limit", "0").splitlines()
    assert len(lines) == 4
    shortened = home.both("ls", "--limit", "1")
    assert "the newest 1 of 4" in shortened.stderr
    none = home.both("ls", "--kind", "UnknownSchemaId")
    assert "no such letters" in none.stderr


def test_ls_and_stats_import_neither_spark_nor_a_parser_nor_numpy(home: Home) -> None:
    for command in ("ls", "stats"):
        done = fresh.forebay(home.path, "dlq", command, "-o", "jsonl")
        assert (done.code, done.heavy) == (0, []), done.words
        assert done.out == home.run(command, "-o", "jsonl")


def test_show_explains(home: Home) -> None:
    [row] = json.loads(home.run("ls", "-o", "json", "-k", "TypeConversion"))
    text = home.run("show", row["id"])
    assert "id BIGINT NOT NULL, price DOUBLE" in text
    assert "failed at byte 19" in text
    assert '│{"id": 7, "price│' in text
    marks = [line for line in text.splitlines() if "^^" in line]
    assert marks[0].split().count("^^") == 7  # "cheap" with its quotes
    assert "--patch '{\"price\": …}'" in text
    [found] = json.loads(home.run("show", f"{row['partition']}/{row['offset']}", "-o", "json"))
    assert (found["failed_from_byte"], found["failed_to_byte"]) == (19, 26)
    assert found["tried"]["format"] == "json"
    assert base64.b64decode(found["letter"]["raw_bytes_base64"]) == TEXT_PRICE


def test_show_of_a_binary_record_has_its_bytes(home: Home) -> None:
    [row] = json.loads(home.run("ls", "-o", "json", "-w", "value IS NULL"))
    text = home.run("show", row["id"])
    assert "failed at byte 128" in text
    assert "70 71 72 73 74 75 76 77  78 79 7a 7b 7c 7d 7e 7f  │pqrstuvwxyz{|}~·│" in text


def test_stats_count(home: Home) -> None:
    picture = home.run("stats")
    assert "4 letters" in picture
    assert "█" in picture
    counted = json.loads(home.run("stats", "-o", "json"))
    kinds = {row["what"]: row["letters"] for row in counted if row["by"] == "error_kind"}
    assert kinds == {"MalformedPayload": 2, "SchemaMismatch": 1, "TypeConversion": 1}
    assert sum(row["letters"] for row in counted if row["by"] == "hour") == 4
    assert sum(row["letters"] for row in counted if row["by"] == "partition") == 4


def test_replay_with_a_function_of_this_folder(home: Home, tmp_path: Path) -> None:
    (tmp_path / "mending.py").write_text(
        "import json\n"
        "def mend(letter):\n"
        "    if letter.kind == 'MalformedPayload':\n"
        "        return None\n"
        "    return json.dumps({**json.loads(letter.value), 'id': 1, 'price': 0.5}).encode()\n"
    )
    dry = home.run("replay", "--all", "--with", "mending:mend", "--dry-run", cwd=tmp_path)
    assert "2 letters" in dry and "would be sent" in dry  # noqa: PT018
    [done] = json.loads(home.run("replay", "--all", "--with", "mending:mend", "-o", "json", cwd=tmp_path))
    assert (done["sent"], done["left"], done["failed"]) == (2, 2, 0)
    values = [message.value() for message in home.case.cluster.records(home.case.topic)]
    assert values.count(b'{"price": 0.5, "id": 1}') == 1
    assert values.count(b'{"id": 1, "price": 0.5}') == 1
    # What a patch cannot do is said, and the exit code tells.
    failed = home.both("replay", "--all", "--patch", '{"id": 1}', status=1)
    assert "2 letters could not be sent and stay open" in failed.stdout


def test_replay_asks_which_letters(home: Home) -> None:
    assert "--where, --kind, --id, or --all" in home.run("replay", status=2)
    assert len(home.case.cluster.records(home.case.topic)) == 4


def test_a_dry_run_decodes_what_would_be_sent(home: Home) -> None:
    [row] = json.loads(home.run("ls", "-o", "json", "-k", "TypeConversion"))
    again = home.run("replay", "--id", row["id"], "--patch", '{"id": 8}', "--dry-run")
    assert "1 would be refused again:" in again
    assert f"{row['id']}: TypeConversion: price: expected DOUBLE" in again
    taken = home.run("replay", "--id", row["id"], "--patch", '{"price": 1.5}', "--dry-run")
    assert "the source would take it" in taken
    [counted] = json.loads(home.run("replay", "--all", "--dry-run", "-o", "json"))
    assert (counted["sent"], counted["refused"]) == (4, 4)
    # What a topic other than the source's own does with a record, nobody here knows.
    [elsewhere] = json.loads(home.run("replay", "--all", "--to", home.case.dlq, "-n", "-o", "json"))
    assert (elsewhere["sent"], elsewhere["refused"]) == (4, None)


def test_a_replay_has_a_limit_and_a_rate(home: Home) -> None:
    [first] = json.loads(home.run("replay", "--all", "--limit", "1", "-o", "json"))
    assert first["sent"] == 1
    began = time.monotonic()
    [rest] = json.loads(home.run("replay", "--all", "--rate", "2", "-o", "json"))
    assert rest["sent"] == 3
    assert time.monotonic() - began >= 1  # two at once, and the third when it is due
    assert len(home.case.cluster.records(home.case.topic)) == 8


def test_a_remedy_repeats_the_flags_that_were_given(home: Home) -> None:
    place, typed = f"{home.case.topic}/0/99999", f"{home.path}/../home"
    lacking = home.run("show", place, "--source", home.case.source, "--home", typed, status=2)
    assert f"forebay dlq ls --source {home.case.source} --home {typed} lists them" in lacking
    [row] = json.loads(home.run("ls", "-o", "json", "-k", "SchemaMismatch"))
    text = home.run("show", row["id"], "--home", str(home.path))
    # The home of the environment was not typed, and need not be.
    assert f"forebay dlq replay --source {home.case.source} --id {row['id']} --patch" in text


def test_stats_name_what_the_rate_limit_kept_out_and_the_command_that_recovers_it(home: Home) -> None:
    with closing(Catalog(home.path / "catalog.db")) as catalog:
        catalog.record_batch(kept_out(home.case))
    said = home.both("stats", "--source", home.case.source)
    assert "7 more bad records" in said.stderr
    assert f"forebay dlq recover --source {home.case.source}" in said.stderr
    counted = json.loads(home.run("stats", "-o", "json"))
    assert [row["letters"] for row in counted if row["by"] == "kept_out"] == [7]


def kept_out(case: Case) -> BatchRecord:
    """A batch of which the rate limit kept seven letters out."""
    stretch = Stretch(case.topic, 0, 0, 20, 7, "")
    return BatchRecord("v", case.source, 0, 20, {"Other": 7}, None, (), 0, {}, 1, 0, 0, 7, (stretch,), 0)


def test_export_writes_the_form_of_the_specification(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    assert "4 letters written" in home.both("export", "-f", str(file)).stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [json.loads(line) for line in home.run("export").splitlines()]
    assert {base64.b64decode(line["raw_bytes_base64"]) for line in lines} == {
        BROKEN,
        NO_ID,
        TEXT_PRICE,
        BINARY,
    }
    wanted = {
        "source_name",
        "error_message",
        "error_kind",
        "timestamp",
        "partition",
        "offset",
        "raw_bytes_base64",
    }
    assert wanted <= set(lines[0])


def test_discard_needs_a_reason_and_a_choice(home: Home) -> None:
    assert "which letters?" in home.run("discard", "-r", "junk", status=2)
    home.both("discard", "--all", status=2)
    assert "2 letters would be discarded" in home.run(
        "discard", "-k", "MalformedPayload", "-r", "junk", "--dry-run"
    )
    assert "2 letters discarded" in home.run("discard", "-k", "MalformedPayload", "-r", "junk")
    rows = json.loads(home.run("ls", "-o", "json", "-w", "state = 'discarded'"))
    assert [row["state_reason"] for row in rows] == ["junk", "junk"]
    assert "none needed: it is discarded (junk)" in home.run("show", rows[0]["id"])
    assert "which letters?" in home.run("reopen", status=2)
    assert "1 letter reopened" in home.run("reopen", "--id", rows[0]["id"])
    [other] = json.loads(home.run("ls", "-o", "json", "-w", "state = 'discarded'"))
    assert other["id"] == rows[1]["id"]


def test_recover_says_that_there_is_nothing(home: Home) -> None:
    assert "has kept nothing" in home.run("recover")


def test_errors_say_what_to_do(home: Home) -> None:
    assert "there is no source 'nothing'" in home.run("ls", "-s", "nothing", status=2)
    assert "did you mean error_kind?" in home.run("ls", "-w", "eror_kind = 'x'", status=2)
    assert "is no letter's id" in home.run("show", "abc", status=2)
    assert "has no letter" in home.run("show", f"{home.case.topic}/0/99999", status=2)
    assert "the patch is not JSON" in home.run("replay", "--all", "--patch", "{", status=2)
    assert "choose one" in home.run("replay", "--id", "0/0", "-k", "Other", status=2)
    assert "a patch or a function" in home.run("replay", "--all", "--patch", "{}", "--with", "a:b", status=2)
    skips = [row for row in home.run("ls", "-o", "json").splitlines() if "skips" in row]
    assert skips == []


def test_help_teaches_with_examples() -> None:
    runner = CliRunner()
    for command in ("ls", "show", "stats", "replay", "export", "discard", "reopen", "recover"):
        assert "Example" in runner.invoke(dlq_app, [command, "--help"]).output
    assert "forebay dlq replay --source orders" in runner.invoke(dlq_app, ["--help"]).output
