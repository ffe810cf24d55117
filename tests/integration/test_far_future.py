"""A record from the far future is refused before it can move a watermark, whatever its format and whoever reads it."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from sessions import (
    BASE_MS,
    PATIENCE_S,
    caught_up,
    checkpoint_of,
    connect,
    create_source,
    create_view,
    event,
    events,
    name,
    rows,
)
from support import Cluster, read
from waiting import eventually

from forebay import column_types as types
from forebay.connectors.contract import SourceConfig, Wanted
from forebay.kafka.connector import KafkaSource
from forebay.runtime.session import Session

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
YEAR_3000 = 32_503_680_000_000
COLUMNS = pa.schema([pa.field("id", types.BIGINT), pa.field("ts", types.TIMESTAMP)])
AVRO = {
    "type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip


def avro(id: int, ms: int) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(AVRO), {"id": id, "ts": ms})
    return written.getvalue()


def debezium(id: int, ms: int) -> bytes:
    """An update: two rows, of which one is from the future if the record is."""
    before, after = {"id": id, "ts": BASE_MS}, {"id": id, "ts": ms}
    return json.dumps({"payload": {"op": "u", "before": before, "after": after}}).encode()


FORMATS: dict[str, tuple[dict[str, str], Any]] = {
    "json": ({}, lambda id, ms: json.dumps({"id": id, "ts": ms}).encode()),
    "csv": ({}, lambda id, ms: b"%d,%d" % (id, ms)),
    "avro": ({"avro.schema": json.dumps(AVRO)}, avro),
    "debezium-json": ({}, debezium),
}


def source_of(cluster: Cluster, topic: str, form: str, **more: str) -> KafkaSource:
    given = cluster.kafka_options(topic, format=form, **more) | FORMATS.get(form, ({},))[0]
    given.pop("connector")
    columns = pa.schema([]) if form == "raw" else COLUMNS
    return KafkaSource(SourceConfig("s", "kafka", given, columns, "TS"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.usefixtures("either_decoder")
def test_a_record_of_any_format_beyond_the_bound_is_refused_whole_with_its_bytes(
    cluster: Cluster, form: str
) -> None:
    topic, (_, make) = cluster.make_topic(2), FORMATS[form]
    good = [make(number, BASE_MS + number) for number in range(20)]
    soon, far = make(20, NOW_MS + DAY_MS // 2), make(21, YEAR_3000)
    cluster.produce(topic, [*good, soon, b"\xff junk"], partition=0)
    cluster.produce(topic, [good[0], far, good[1]], partition=1, key=b"k", headers=[("h", b"\xff")])
    source = source_of(cluster, topic, form)
    source.wanted = Wanted(whole=True)
    start = source.initial_offsets()
    found, rejected = read(source, start, source.latest_offsets(start, None))
    each = 2 if form == "debezium-json" else 1
    assert sorted(row["id"] for row in found) == sorted([*range(21), 0, 1] * each)
    [future] = [bad for bad in rejected if bad.kind == "FutureTimestamp"]
    assert (future.partition, future.offset, future.path) == (1, 1, "ts")
    assert "event time 3000-01-01T00:00:00.000Z is beyond" in future.message
    assert "86400000 ms ('watermark.max.future.ms')" in future.message
    assert future.record is not None
    assert (future.record.key, future.record.value, list(future.record.headers)) == (
        b"k",
        far,
        [("h", b"\xff")],
    )
    assert [bad.offset for bad in rejected if bad is not future] == [21]
    source.close()


@pytest.mark.usefixtures("either_decoder")
def test_the_time_of_the_record_itself_can_be_from_the_future(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"a"])
    cluster.produce(topic, [b"b"], timestamp=NOW_MS + 1_800_000)  # a broker takes up to an hour
    source = source_of(
        cluster, topic, "raw", include_timestamp_as="ts", **{"watermark.max.future.ms": "60000"}
    )
    start = source.initial_offsets()
    found, rejected = read(source, start, source.latest_offsets(start, None))
    assert [row["value"] for row in found] == [b"a"]
    assert [bad.kind for bad in rejected] == ["FutureTimestamp"]
    source.close()


def test_a_repeated_batch_refuses_what_it_refused_and_takes_what_it_took(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [json.dumps({"id": id, "ts": BASE_MS + id * DAY_MS}) for id in range(5)])
    source = source_of(cluster, topic, "json")
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert abs(end["now"] - time.time() * 1000) < 60_000, "the offset that Spark logs has the clock"
    # The same batch as it was planned when the clock had come to the first of them: a day ahead, and no further.
    long_ago = end | {"now": BASE_MS}
    for _ in range(2):
        found, rejected = read(source, start, long_ago)
        assert [row["id"] for row in found] == [0, 1]
        assert [bad.offset for bad in rejected] == [2, 3, 4]
    assert read(source, start, end)[1] == []
    assert source.latest_offsets(end, None) == end, (
        "where nothing is new the offset stays as it is, its clock too"
    )
    source.close()


def test_zero_takes_any_time_and_without_event_time_nothing_is_looked_at(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [json.dumps({"id": 1, "ts": YEAR_3000})])
    never = source_of(cluster, topic, "json", **{"watermark.max.future.ms": "0"})
    given = {key: text for key, text in cluster.kafka_options(topic).items() if key != "connector"}
    without = KafkaSource(SourceConfig("s", "kafka", given, COLUMNS))
    for source in (never, without):
        start = source.initial_offsets()
        end = source.latest_offsets(start, None)
        assert "now" not in end
        assert len(read(source, start, end)[0]) == 1
        source.close()


def test_a_far_future_record_is_a_letter_moves_no_watermark_and_can_be_replayed(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, dlq, source = cluster.make_topic(1), cluster.make_topic(1), name("src")
    home = tmp_path / "home"
    windows = (
        f"SELECT window_start AS w, count(*) AS n FROM {source} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    with connect(home) as db:
        made = create_source(cluster, source, topic, auto_offset_reset="earliest")
        db.execute(
            f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = 1)"
        )
        plain = create_view(db, f"SELECT id FROM {source}")
        changes = create_view(db, f"{windows} EMIT CHANGES")
        closing = create_view(db, f"{windows} EMIT ON WINDOW CLOSE")
        far = [event(number, ts=YEAR_3000) for number in (1, 2, 3)]
        cluster.produce(topic, [event(0), *far, "junk", event(4)], key=b"key", headers=[("h", None)])
        caught_up(db)
        # The watermark did not follow: rows of the same minute are not late, and its window is not closed.
        cluster.produce(topic, events([5, 6]))
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {plain}")) == [0, 4, 5, 6]
        assert [row[1] for row in rows(db, f"SELECT w, n FROM {changes}")] == [4]
        assert rows(db, f"SELECT * FROM {closing}") == []
        cluster.produce(topic, events([70]))
        caught_up(db)
        eventually(
            lambda: [row[1] for row in rows(db, f"SELECT * FROM {closing}")] == [4], "it closes in time"
        )
        assert {(query.rejected, query.late) for query in db.queries()} == {(4, 0)}
        found = [entry for entry in db.dead_letters(source) if entry.letter.value != b"junk"]
        assert len(list(db.dead_letters(source))) == 4
        assert [entry.letter.value for entry in found] == [value.encode() for value in far], (
            "no limit keeps one out"
        )
        for entry in found:
            letter = entry.letter
            assert (letter.kind, letter.key, letter.headers) == ("FutureTimestamp", b"key", (("h", None),))
            assert letter.field == "ts"
            assert "3000-01-01" in letter.message
        explained = db.dead_letters(source).explain(found[0].id)
        assert explained.now == "refused, for the same reason"
        assert "watermark.max.future.ms" in explained.remedy
        report = (
            db.dead_letters(source)
            .where("error_kind = 'FutureTimestamp'")
            .replay(patch=json.dumps({"ts": BASE_MS + 71_000}))
        )
        assert report.sent == 3
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {plain}")) == [0, 1, 2, 3, 4, 5, 6, 70]
        cluster.produce(topic, [event(80), event(81, ts=YEAR_3000)])
        caught_up(db)

    # The last batch again, as after a crash before its commit: the same rows, the same letters.
    commits = checkpoint_of(home, plain) / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    with connect(home) as db:
        db.start_all()
        caught_up(db)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM {plain}")) == [0, 1, 2, 3, 4, 5, 6, 70, 80]
        assert len(list(db.dead_letters(source))) == 5
        assert {query.rejected for query in db.queries()} == {5}


@pytest.mark.parametrize("strategy", ["skip", "fail"])
def test_a_far_future_record_is_skipped_or_ends_the_view_as_the_policy_says(
    db: Session, cluster: Cluster, strategy: str
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    db.execute(
        create_source(cluster, source, topic, auto_offset_reset="earliest") + f" ON ERROR = '{strategy}'"
    )
    shared = create_view(db, f"SELECT id FROM {source}")
    alone = create_view(db, f"SELECT DISTINCT id FROM {source}")
    cluster.produce(topic, [event(0), event(1, ts=YEAR_3000), event(2)])
    try:
        if strategy == "skip":
            caught_up(db)
            for view in (shared, alone):
                assert sorted(row[0] for row in rows(db, f"SELECT id FROM {view}")) == [0, 2]
            return
        for view in (shared, alone):
            failed = eventually(
                lambda view=view: next(
                    (q for q in db.queries() if q.view == view and q.state == "failed"), None
                ),  # type: ignore[misc]
                "the view fails",
                PATIENCE_S,
            )
            assert "a record that is from the future" in failed.message
            assert "FutureTimestamp" in failed.message
            assert rows(db, f"SELECT id FROM {view}") == []
    finally:
        db.execute(f"DROP SOURCE {source} CASCADE")
