"""What a task of a shared read is given: all that it needs, and nothing of the driver's home but where tables are."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from forebay import column_types as types
from forebay.connectors.contract import Offsets
from forebay.deadletter.policy import ErrorPolicy, SourceFolder
from forebay.expression import Expression
from forebay.program import Selecting
from forebay.source import datasource
from forebay.source.datasource import ForebaySource, ForebayStreamReader
from forebay.source.serve import ANSWER
from forebay.source.serving import BatchHeader, Participant, ReadState, ServedView
from forebay.source.spark_types import to_spark

PROGRAM = Selecting(None, (("n", Expression.column("n", types.BIGINT)),)).to_json()
COLUMNS = StructType([StructField("n", LongType())])


def at(row: int) -> Offsets:
    return {"source": "s", "generation": 0, "row": row, "epoch_ms": 0}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = SourceFolder(tmp_path / "home" / "sources" / "s")
    folder.write_policy(ErrorPolicy("dead_letter", topic="letters", max_per_second=7, max_error_ratio=0.5))
    return tmp_path / "home"


def reader(home: Path, *views: Participant) -> ForebayStreamReader:
    state = home / "views.json"
    ReadState({view.view.name: view for view in views}).write(state)
    options = {
        "connector": "datagen", "rows.per.second": "1000",
        datasource.SOURCE_NAME: "s", datasource.SHARED: str(state), datasource.DRAIN_FILE: str(home / "drain"),
        datasource.ERRORS: str(home / "sources" / "s"), datasource.HEALTH: str(home / "health"),
        datasource.PARALLELISM: "2", datasource.START: json.dumps(at(0)), datasource.COLUMNS: COLUMNS.json(),
    }  # fmt: skip
    source = ForebaySource(options)
    return source.streamReader(to_spark(ANSWER))


def served(name: str, position: Offsets | None = None, *, ready: bool = True) -> Participant:
    return Participant(ServedView(name, PROGRAM, f"/tables/{name}"), position, ready)


def test_a_task_gets_no_path_of_the_home_and_what_it_must_know_comes_with_its_split(home: Path) -> None:
    made = reader(home, served("v"))
    pieces = made.partitions(at(0), at(100))
    assert str(home).encode() not in pickle.dumps((made, pieces))
    for piece in pieces:
        assert piece.treatment.policy.topic == "letters"
        assert [view.table for view in piece.serving.views] == ["/tables/v"]
    assert sum(piece.treatment.share.rate for piece in pieces) == 7, "the letters are shared out"


def test_a_changed_policy_is_known_to_the_next_batch(home: Path) -> None:
    made = reader(home, served("v"))
    assert made.partitions(at(0), at(10))[0].treatment.policy.strategy == "dead_letter"
    SourceFolder(home / "sources" / "s").write_policy(ErrorPolicy("fail"))
    assert made.partitions(at(10), at(20))[0].treatment.policy.strategy == "fail"


def test_who_is_behind_gets_what_it_missed_alone_and_who_is_ahead_waits(home: Path) -> None:
    made = reader(
        home,
        served("with"),
        served("behind", at(30)),
        served("ahead", at(70)),
        served("away", at(30), ready=False),
    )
    pieces = made.partitions(at(50), at(60))
    header = BatchHeader.from_json(pieces[0].serving.header)
    assert {name: position["row"] for name, position in header.served.items()} == {"with": 50, "behind": 30}
    assert [piece.serving.header for piece in pieces[1:]] == [None] * (len(pieces) - 1)
    together = [piece for piece in pieces if not piece.serving.catching_up]
    alone = [piece for piece in pieces if piece.serving.catching_up]
    assert {view.name for piece in together for view in piece.serving.views} == {"with", "behind"}
    assert {view.name for piece in alone for view in piece.serving.views} == {"behind"}
    rows = pa.Table.from_batches(
        [batch.records for piece in alone for batch in made.connector.read_batch(piece.split)]
    )
    assert rows.num_rows == 20


def test_a_batch_without_anything_to_read_still_tells_the_driver_what_it_was(home: Path) -> None:
    [piece] = reader(home).partitions(at(5), at(5))
    assert piece.split is None
    assert BatchHeader.from_json(piece.serving.header).served == {}
