"""One suite for every connector: what the runtime relies on, whatever the records come from."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support import NUMBERS, Cluster, numbers, read
from waiting import eventually

from forebay import column_types as types
from forebay.connectors.contract import (
    ConnectorState,
    Offsets,
    SourceCheckpoint,
    SourceConfig,
    SourceConnector,
    Split,
)
from forebay.connectors.datagen import BLOCK, DATAGEN, DatagenSource
from forebay.connectors.registry import ConnectorRegistry, default_registry
from forebay.errors import (
    ConnectorStateError,
    OptionValueError,
    UnknownOptionError,
    UnsupportedSqlError,
)

COUNT = 2_000


@dataclass
class Subject:
    """A connector's configuration over a source that holds the numbers 0 to COUNT - 1, each once."""

    config: SourceConfig

    def new(self) -> SourceConnector:
        return default_registry().make(self.config)


@pytest.fixture(scope="module", params=["kafka", "datagen"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "kafka":
        cluster: Cluster = request.getfixturevalue("cluster")
        topic = cluster.make_topic(3)
        cluster.produce(topic, numbers(COUNT))
        options = cluster.kafka_options(topic)
        del options["connector"]
    else:
        options = {
            "number.of.rows": str(COUNT),
            "rows.per.second": "10000000",
            "fields.n.kind": "sequence",
        }
    return Subject(SourceConfig("contract", request.param, options, NUMBERS))


@pytest.fixture
def source(subject: Subject) -> Iterator[SourceConnector]:
    source = subject.new()
    source.open()
    yield source
    source.close()


def all_there(source: SourceConnector, start: Offsets) -> Offsets:
    end = eventually(
        lambda: (
            (found := source.latest_offsets(start, None)) and source.count(start, found) == COUNT and found
        ),
        "everything is there to read",
    )
    assert isinstance(end, dict)
    return end


def more_than(source: SourceConnector, position: Offsets, limit: int) -> Offsets:
    end = eventually(
        lambda: (found := source.latest_offsets(position, limit)) != position and found, "more records"
    )
    assert isinstance(end, dict)
    return end


# -- the contract -----------------------------------------------------------------------------------------


def test_it_says_what_it_is_and_which_options_it_takes(subject: Subject) -> None:
    info = subject.new().info()
    assert info.connector_type == subject.config.connector
    assert info.description
    assert info.config_keys == default_registry().get(info.connector_type).table.options


def test_it_lives_from_created_over_running_to_stopped(subject: Subject) -> None:
    source = subject.new()
    assert source.state is ConnectorState.CREATED
    source.open()
    assert source.state is ConnectorState.RUNNING
    source.open()  # opened again, it is as it was
    assert source.state is ConnectorState.RUNNING
    source.close()
    source.close()
    assert source.state is ConnectorState.STOPPED
    with pytest.raises(ConnectorStateError, match="is closed"):
        source.open()


def test_it_delivers_every_record_exactly_once(source: SourceConnector) -> None:
    start = source.initial_offsets()
    rows, rejected = read(source, start, all_there(source, start))
    assert sorted(row["n"] for row in rows) == list(range(COUNT))
    assert rejected == []


def test_it_delivers_every_record_exactly_once_in_batches_of_any_size(source: SourceConnector) -> None:
    position = source.initial_offsets()
    seen: list[int] = []
    for limit in itertools.cycle([1, 7, 300, 1100]):
        end = more_than(source, position, limit)
        assert 0 < source.count(position, end) <= limit
        seen += [row["n"] for row in read(source, position, end)[0]]
        position = end
        if len(seen) >= COUNT:
            break
    assert sorted(seen) == list(range(COUNT))
    assert source.latest_offsets(position, None) == position


def test_a_worker_that_was_never_opened_reads_a_pickled_split_the_same_each_time(subject: Subject) -> None:
    # One split may hold several partitions; between partitions Kafka promises no order, and neither do we.
    planner = subject.new()
    start = planner.initial_offsets()
    end = all_there(planner, start)
    for split in planner.plan_batches(start, end, 2):
        carried: Split = pickle.loads(pickle.dumps(split))
        assert carried == split
        runs = []
        for _ in range(2):
            worker = default_registry().make(pickle.loads(pickle.dumps(subject.config)))
            runs.append(
                sorted(row["n"] for batch in worker.read_batch(carried) for row in batch.records.to_pylist())
            )
            worker.close()
        assert runs[0] == runs[1]
        assert runs[0]
    planner.close()


def test_a_batch_that_is_planned_again_has_the_same_rows_whatever_the_parallelism(
    source: SourceConnector,
) -> None:
    start = source.initial_offsets()
    end = all_there(source, start)
    runs = [sorted(row["n"] for row in read(source, start, end, tasks)[0]) for tasks in (1, 2, 8)]
    assert runs[0] == runs[1] == runs[2]


def test_rows_have_exactly_the_full_schema(source: SourceConnector) -> None:
    start = source.initial_offsets()
    end = all_there(source, start)
    expected = source.full_schema()
    for split in source.plan_batches(start, end, 2):
        for batch in source.read_batch(split):
            assert batch.records.schema == expected


def test_offsets_survive_the_offset_log_as_equal_texts(source: SourceConnector) -> None:
    start = source.initial_offsets()
    for offsets in (start, all_there(source, start), source.end_offsets()):
        text = json.dumps(offsets)
        assert json.dumps(json.loads(text)) == text
    same = source.latest_offsets(json.loads(json.dumps(start)), 0)
    assert json.dumps(same) == json.dumps(start)


def test_nothing_is_planned_past_a_bound(source: SourceConnector) -> None:
    start = source.initial_offsets()
    all_there(source, start)
    bound = source.latest_offsets(start, 100)
    end = source.latest_offsets(start, None, bound)
    assert source.count(start, end) == 100
    assert source.latest_offsets(end, None, bound) == end
    assert source.reached(end, bound)


def test_reached_and_count_agree(source: SourceConnector) -> None:
    start = source.initial_offsets()
    end = all_there(source, start)
    middle = source.latest_offsets(start, COUNT // 2)
    assert source.count(start, start) == source.count(end, end) == 0
    assert source.count(start, middle) + source.count(middle, end) == source.count(start, end) == COUNT
    assert source.reached(end, source.end_offsets())
    assert source.reached(end, middle)
    assert source.reached(middle, middle)
    assert not source.reached(middle, end)
    assert not source.reached(start, end)
    assert source.lost(start, end) == ()


def test_between_a_position_and_itself_there_is_nothing_to_plan(source: SourceConnector) -> None:
    start = source.initial_offsets()
    assert list(source.plan_batches(start, start, 4)) == []


def test_the_known_end_is_where_the_source_ended_when_last_looked(source: SourceConnector) -> None:
    start = source.initial_offsets()
    all_there(source, start)
    source.latest_offsets(start, 1)
    known = source.known_end()
    assert known is not None
    assert source.reached(known, source.end_offsets())


def test_what_is_committed_is_current_and_lag_counts_the_rest(source: SourceConnector) -> None:
    assert source.current_offsets() is None
    start = source.initial_offsets()
    all_there(source, start)
    middle = source.latest_offsets(start, 1500)
    checkpoint = SourceCheckpoint(middle, epoch=4)
    source.commit_offsets(checkpoint)
    assert source.current_offsets() == checkpoint
    lags = source.lag()
    assert sum(item.lag for item in lags) == COUNT - 1500
    assert all(item.lag == item.end - (item.committed or 0) for item in lags)


def test_it_is_healthy_while_it_runs_and_its_metrics_count_what_was_read(source: SourceConnector) -> None:
    assert source.health_check().healthy
    assert source.health_check().message
    before = source.metrics().records_total
    start = source.initial_offsets()
    read(source, start, all_there(source, start))
    assert source.metrics().records_total == before + COUNT
    assert source.metrics().errors_total == 0


def test_a_configuration_shows_no_options(subject: Subject) -> None:
    assert repr(subject.config) == f"SourceConfig(name='contract', connector='{subject.config.connector}')"


# -- the registry -----------------------------------------------------------------------------------------


def test_connectors_are_found_by_entry_point() -> None:
    registry = ConnectorRegistry()
    assert registry.names() == ["blackboard", "datagen", "kafka"]
    assert registry.get("datagen") is DatagenSource
    assert registry.get("kafka").info().connector_type == "kafka"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("kafak", "did you mean 'kafka'?"), ("mqtt", "there are: blackboard, datagen, kafka")],
)
def test_an_unknown_connector_is_an_error_with_a_suggestion(name: str, remedy: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        ConnectorRegistry().get(name)
    assert caught.value.option == "connector"
    assert caught.value.remedy == remedy


def test_a_connector_can_be_registered_by_hand_and_wins() -> None:
    registry = ConnectorRegistry()
    registry.register("kafka", DatagenSource)
    registry.register("mine", DatagenSource)
    assert registry.names() == ["blackboard", "datagen", "kafka", "mine"]
    assert registry.get("kafka") is DatagenSource
    made = registry.make(SourceConfig("s", "mine", {}, NUMBERS))
    assert isinstance(made, DatagenSource)
    assert ConnectorRegistry().get("kafka") is not DatagenSource


def test_a_kafka_source_without_a_group_gets_one_of_its_name() -> None:
    kafka = default_registry().get("kafka")
    assert kafka.with_defaults("trades", {"topic": "t"}) == {"group.id": "forebay-trades", "topic": "t"}
    assert kafka.with_defaults("trades", {"group.id": "mine"}) == {"group.id": "mine"}


# -- datagen ----------------------------------------------------------------------------------------------


def datagen(
    columns: dict[str, pa.DataType], options: dict[str, str] | None = None, **more: str
) -> DatagenSource:
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    given = {"number.of.rows": "5000", **(options or {})}
    return DatagenSource(SourceConfig("gen", "datagen", given | more, schema))


def rows_of(source: DatagenSource, first: int = 0, last: int = 5000) -> list[dict[str, Any]]:
    start = {"row": first, "epoch_ms": 1_700_000_000_000}
    return read(source, start, {**start, "row": last})[0]


def column(kind: pa.DataType, settings: dict[str, str], last: int = 5000) -> list[Any]:
    source = datagen({"c": kind}, {f"fields.c.{key}": text for key, text in settings.items()})
    return [row["c"] for row in rows_of(source, 0, last)]


EVERY_TYPE: dict[str, pa.DataType] = {
    "i8": types.TINYINT,
    "i16": types.SMALLINT,
    "i32": types.INT,
    "i64": types.BIGINT,
    "f32": types.FLOAT,
    "f64": types.DOUBLE,
    "d": pa.decimal128(10, 2),
    "s": types.STRING,
    "b": types.BOOLEAN,
    "ts": types.TIMESTAMP,
    "tn": types.TIMESTAMP_NTZ,
    "day": types.DATE,
}


def test_a_row_is_a_function_of_the_seed_and_its_number() -> None:
    whole = rows_of(datagen(EVERY_TYPE))
    assert rows_of(datagen(EVERY_TYPE)) == whole
    assert rows_of(datagen(EVERY_TYPE), BLOCK - 3, BLOCK + 5) == whole[BLOCK - 3 : BLOCK + 5]
    assert rows_of(datagen(EVERY_TYPE), 4999, 5000) == whole[4999:]
    other = rows_of(datagen(EVERY_TYPE, {"seed": "7"}))
    assert [row["s"] for row in other] != [row["s"] for row in whole]


def test_a_first_batch_that_is_repeated_has_the_rows_that_were_logged() -> None:
    source = datagen({"ts": types.TIMESTAMP})
    end = {"row": 10, "epoch_ms": 1_700_000_000_000}
    before = read(source, {"row": 0, "epoch_ms": 1_700_000_000_000}, end)
    after_restart = read(source, {"row": 0, "epoch_ms": 1_800_000_000_000}, end)
    assert before == after_restart


def test_sequences_count_and_begin_again_at_their_end() -> None:
    assert column(types.BIGINT, {"kind": "sequence"}, 3) == [0, 1, 2]
    assert column(types.BIGINT, {"start": "10", "end": "12"}, 7) == [10, 11, 12, 10, 11, 12, 10]
    assert column(types.STRING, {"kind": "sequence", "start": "5"}, 2) == ["5", "6"]
    assert column(types.TINYINT, {"kind": "sequence"}, 130)[126:] == [126, 127, 0, 1]


def test_choices_are_of_the_columns_type() -> None:
    assert set(column(types.STRING, {"choices": "BTC, ETH"})) == {"BTC", "ETH"}
    assert set(column(types.INT, {"choices": "1,2,3"})) == {1, 2, 3}
    assert set(column(types.BIGINT, {"choices": "9007199254740993"})) == {9007199254740993}
    assert set(column(types.DOUBLE, {"choices": "0.5,1.5"})) == {0.5, 1.5}
    assert set(column(pa.decimal128(5, 2), {"choices": "0.10,9.99"})) == {Decimal("0.10"), Decimal("9.99")}


def test_random_values_lie_in_their_range() -> None:
    for kind, low, high in ((types.INT, -5, 5), (types.BIGINT, 0, 3), (types.TINYINT, 100, 127)):
        values = column(kind, {"min": str(low), "max": str(high)})
        assert set(values) == set(range(low, high + 1))
    floats = column(types.DOUBLE, {"min": "-1", "max": "2.5"})
    assert -1 <= min(floats) < 0 < 2 < max(floats) <= 2.5
    decimals = column(pa.decimal128(6, 2), {"min": "10.10", "max": "10.13"})
    assert set(decimals) == {Decimal("10.10"), Decimal("10.11"), Decimal("10.12"), Decimal("10.13")}
    assert {len(text) for text in column(types.STRING, {"length": "4"})} == {4}
    assert set(column(types.BOOLEAN, {})) == {True, False}


def test_times_follow_the_rate_from_the_first_row_on() -> None:
    source = datagen(
        {"ts": types.TIMESTAMP, "tn": types.TIMESTAMP_NTZ, "day": types.DATE}, {"rows.per.second": "4"}
    )
    first = datetime.fromtimestamp(1_700_000_000, UTC)
    for number, row in enumerate(rows_of(source, 0, 6)):
        expected = first + timedelta(seconds=number / 4)
        assert row == {"ts": expected, "tn": expected.replace(tzinfo=None), "day": first.date()}


@pytest.mark.parametrize("kind", EVERY_TYPE.values(), ids=EVERY_TYPE)
def test_null_rate_is_the_share_of_nulls_in_a_column_of_any_type(kind: pa.DataType) -> None:
    share = sum(value is None for value in column(kind, {"null.rate": "0.25"})) / 5000
    assert 0.2 < share < 0.3
    assert set(column(kind, {"null.rate": "1"}, 100)) == {None}
    assert None not in column(kind, {}, 1000)


def test_rows_appear_at_their_rate_and_no_more_than_there_are() -> None:
    source = datagen({"n": types.BIGINT}, {"rows.per.second": "2000", "number.of.rows": "300"})
    start = source.initial_offsets()
    assert source.latest_offsets(start, None)["row"] < 300
    eventually(lambda: source.latest_offsets(start, None)["row"] == 300, "all rows have appeared")
    assert source.end_offsets()["row"] == 300
    endless = DatagenSource(SourceConfig("gen", "datagen", {"rows.per.second": "1000000"}, NUMBERS))
    start = endless.initial_offsets()
    eventually(lambda: endless.latest_offsets(start, None)["row"] > 10_000, "rows without end")
    assert endless.latest_offsets(start, 10)["row"] == 10


def test_a_large_batch_is_cut_into_as_many_tasks_as_can_run() -> None:
    source = datagen({"n": types.BIGINT}, {"number.of.rows": "2000000"})
    start = {"row": 0, "epoch_ms": 1}
    assert len(source.plan_batches(start, {"row": 200_000, "epoch_ms": 1}, 4)) == 1
    splits = source.plan_batches(start, {"row": 2_000_000, "epoch_ms": 1}, 4)
    edges = [(split.start, split.end) for split in splits]  # type: ignore[attr-defined]
    assert edges == [(n * 500_000, (n + 1) * 500_000) for n in range(4)]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (types.BIGINT, {"kind": "rising"}),
        (types.BIGINT, {"min": "low"}),
        (types.BIGINT, {"min": "5", "max": "4"}),
        (types.TINYINT, {"max": "128"}),
        (types.BIGINT, {"length": "3"}),
        (types.BIGINT, {"choices": "1,two"}),
        (types.BIGINT, {"choices": "1.5"}),
        (types.TINYINT, {"choices": "300"}),
        (types.BIGINT, {"choices": "1", "min": "0"}),
        (types.STRING, {"choices": "a,,b"}),
        (types.BOOLEAN, {"choices": "true"}),
        (types.BIGINT, {"start": "5", "end": "4"}),
        (types.TINYINT, {"start": "0", "end": "200"}),
        (types.BOOLEAN, {"kind": "sequence"}),
        (types.DOUBLE, {"max": "nan"}),
        (pa.decimal128(3, 2), {"max": "10"}),
        (pa.decimal128(3, 2), {"max": "much"}),
        (types.STRING, {"length": "-1"}),
        (types.STRING, {"min": "a"}),
        (types.TIMESTAMP, {"min": "0"}),
        (types.BIGINT, {"null.rate": "2"}),
        (types.BIGINT, {"null.rate": "some"}),
        (types.BINARY, {}),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_the_column_are_refused_before_any_row_is_made(
    kind: pa.DataType, settings: dict[str, str]
) -> None:
    with pytest.raises(OptionValueError, match="column 'c'") as caught:
        datagen({"c": kind}, {f"fields.c.{key}": text for key, text in settings.items()})
    assert caught.value.option.startswith("fields.c.")


def test_nulls_are_refused_where_the_column_may_not_be_null() -> None:
    schema = pa.schema([pa.field("c", types.BIGINT, nullable=False)])
    with pytest.raises(OptionValueError, match="NOT NULL"):
        DatagenSource(SourceConfig("gen", "datagen", {"fields.c.null.rate": "0.5"}, schema))


@pytest.mark.parametrize("key", ["fields.other.min", "fields.c.maximum", "fields.c"])
def test_a_setting_of_no_column_or_of_no_meaning_is_an_error_that_lists_those_there_are(key: str) -> None:
    with pytest.raises(OptionValueError, match="there is no") as caught:
        datagen({"c": types.BIGINT}, {key: "1"})
    assert caught.value.option == key
    assert caught.value.remedy.startswith("there are: ")


def test_a_datagen_source_needs_columns_and_takes_no_unknown_option() -> None:
    with pytest.raises(UnsupportedSqlError, match="needs its columns"):
        datagen({}).open()
    with pytest.raises(UnknownOptionError, match=r"no option 'rows\.per\.secnd'"):
        datagen({"c": types.BIGINT}, {"rows.per.secnd": "1"})
    assert DATAGEN.bind({})["rows.per.second"] == 10_000
    assert datagen({"c": types.BIGINT}).discover_schema() is None
