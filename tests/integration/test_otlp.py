"""A real OTLP receiver gets what the environment says it shall: a record's trace goes on, metrics are those of Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import OtlpReceiver, attributes
from sessions import event, name
from support import Cluster, unique

from forebay.connectors.contract import TracedRecord, Wanted
from forebay.kafka.connector import KafkaSource
from forebay.source.task_traces import TaskTraces

SECRET = "hunter2-in-the-payload"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    made = OtlpReceiver()
    yield made
    made.close()


def parent(trace: str, flags: str = "01") -> list[tuple[str, bytes | None]]:
    return [("traceparent", f"00-{trace}-{'b7ad6b71692033' + trace[-2:]}-{flags}".encode())]


def run(folder: Path, script: str, receiver: OtlpReceiver, **env: str) -> dict[str, Any]:
    """A program of a user's, in a process of its own: OpenTelemetry is set up once a process. What it prints last is JSON."""
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        **env,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=folder, env={**os.environ, **given},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


PIPELINE = """
    import json, sys
    import forebay
    from prometheus_client import CollectorRegistry

    topic, letters, source, view, own, brokers = {names!r}
    with forebay.connect(home="home", master="local[2]", spark_conf={{"spark.sql.shuffle.partitions": "2"}}) as db:
        db.execute(f'''
            CREATE SOURCE {{source}} (id BIGINT NOT NULL, k STRING, v BIGINT)
            FROM KAFKA (brokers = '{{brokers}}', topic = '{{topic}}', group_id = '{{source}}') FORMAT JSON
            ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{{letters}}');
            CREATE MATERIALIZED VIEW {{view}} AS SELECT id FROM {{source}};
            CREATE MATERIALIZED VIEW {{own}} AS SELECT DISTINCT id FROM {{source}};
        ''')
        db.wait(until_caught_up=True, timeout=60)
        db.dead_letters(source).replay(patch='{{"v": 7}}')
        db.wait(until_caught_up=True, timeout=60)
        registry = CollectorRegistry()
        registry.register(db.collector())
        records = registry.get_sample_value("forebay_source_records_total", {{"source": source}})
        batches = registry.get_sample_value("forebay_query_batch_seconds_count", {{"view": view}})
        rows = db.sql(f"SELECT count(*) AS n FROM {{view}}").fetchall()
    print(json.dumps({{"records": records, "batches": batches, "rows": rows}}))
"""


def test_a_records_trace_goes_on_from_its_producer_to_view_letter_and_replay(
    tmp_path: Path, cluster: Cluster, receiver: OtlpReceiver
) -> None:
    topic, letters, source, view, own = (
        cluster.make_topic(2),
        unique("dlq"),
        name("src"),
        name("v"),
        name("own"),
    )
    good, bad, unkept = (
        "0af7651916cd43dd8448eb211c803101",
        "0af7651916cd43dd8448eb211c803102",
        "0af7651916cd43dd8448eb211c803103",
    )
    cluster.produce(topic, [event(number) for number in range(100)])
    cluster.produce(topic, [event(100, k=SECRET)], headers=[("secret", SECRET.encode()), *parent(good)])
    cluster.produce(topic, [event(101, v=SECRET)], headers=parent(bad))
    cluster.produce(topic, [event(102)], headers=parent(unkept, "00"))
    names = (topic, letters, source, view, own, cluster.bootstrap_servers)
    found = run(tmp_path, PIPELINE.format(names=names), receiver)
    assert found["rows"] == [[103]]

    process = f"process {topic}"
    spans = [span for span in receiver.spans if span.trace_id.hex() == good]
    of_views = {tuple(attributes(span.attributes)["forebay.views"]): span for span in spans}
    assert of_views.keys() == {(view,), (own,)}
    span = of_views[view,]
    told = attributes(span.attributes)
    assert (span.name, span.parent_span_id.hex()) == (process, "b7ad6b7169203301")
    assert told["messaging.destination.name"] == topic
    assert told["messaging.consumer.group.name"] == told["forebay.source"] == source
    assert told["messaging.operation.type"] == "process"
    assert (told["messaging.destination.partition.id"], told["messaging.kafka.offset"]) == ("0", 50)

    batches = {
        each.span_id: each for each in receiver.spans
        if each.name == f"receive {topic}" and attributes(each.attributes)["forebay.views"] == [view]
    }  # fmt: skip
    [link] = span.links
    batch = batches[link.span_id]
    assert attributes(batch.attributes)["messaging.batch.message_count"] == 103
    assert {each.trace_id.hex() for each in batch.links} == {good, bad}

    # The bad one: refused, its letter below it; then the replay of the letter, and what became of that.
    of_bad = [span for span in receiver.spans if span.trace_id.hex() == bad]
    refused = [
        span for span in of_bad if span.name == process and "error.type" in attributes(span.attributes)
    ]
    assert {attributes(span.attributes)["error.type"] for span in refused} == {"TypeConversion"}
    assert all(span.status.code == 2 for span in refused)
    letter = [span for span in of_bad if span.name == f"send {letters}"]
    assert {span.parent_span_id for span in letter} == {span.span_id for span in refused}
    [replay] = [span for span in of_bad if span.name == f"send {topic}"]
    again = [span for span in of_bad if span.name == process and span.parent_span_id == replay.span_id]
    assert {tuple(attributes(span.attributes)["forebay.views"]) for span in again} == {(view,), (own,)}
    assert not any("error.type" in attributes(span.attributes) for span in again)
    # What is in the letter is what its producer wrote.
    kept = {dict(each.headers() or ())["traceparent"] for each in cluster.records(letters)}
    assert kept == {parent(bad)[0][1]}

    assert not [span for span in receiver.spans if span.trace_id.hex() == unkept]
    assert {each["service.name"] for each in receiver.resources} == {"forebay"}
    assert not any(SECRET.encode() in body for body in receiver.raw)

    # Metrics: as Prometheus has them.
    [point] = receiver.metrics["forebay.source.records"].sum.data_points
    assert point.as_int == found["records"] == 104
    assert attributes(point.attributes) == {"source": source}
    lag = receiver.metrics["forebay.source.lag"]
    assert (lag.unit, {each.as_int for each in lag.gauge.data_points}) == ("s", {0})
    times = {
        attributes(each.attributes)["view"]: each
        for each in receiver.metrics["forebay.query.batch"].histogram.data_points
    }
    assert times[view].count == sum(times[view].bucket_counts) == found["batches"]
    consumed = receiver.metrics["messaging.client.consumed.messages"].sum
    assert [each.as_int for each in consumed.data_points] == [104]
    assert consumed.is_monotonic
    assert "messaging.process.duration" in receiver.metrics


def test_both_readers_name_the_same_records_that_carry_a_trace_and_why_they_were_refused(
    cluster: Cluster, kafka_source: Callable[..., KafkaSource], plainly: Callable[[], None]
) -> None:
    topic = cluster.make_topic(1)
    kept = [f"0af7651916cd43dd8448eb211c8031{number:02x}" for number in range(40)]
    for number, trace in enumerate(kept):
        value = b"{}" if number % 10 else b"{"
        cluster.produce(
            topic, [value], headers=[("x", b"1"), *parent("f" * 32), *parent(trace)]
        )  # the last one counts
    odd: list[tuple[str, bytes | None]] = [
        ("traceparent", None), ("traceparent", b""), ("traceparent", b"\xff" * 55), ("Traceparent", parent(kept[0])[0][1]),
        ("traceparent", parent(kept[0], "00")[0][1]), ("traceparent", parent(kept[0].upper())[0][1]),
        ("traceparent", b"00" + b"-" * 53),
    ]  # fmt: skip
    for header in odd:
        cluster.produce(topic, [b"{}"], headers=[header])

    def traced(most: int) -> list[TracedRecord]:
        source = kafka_source(cluster.kafka_options(topic))
        source.open()
        source.wanted = Wanted(traces=most)
        traces = TaskTraces(most)
        start = source.initial_offsets()
        [split] = source.plan_batches(start, source.latest_offsets(start, None), 1)
        for batch in source.read_batch(split):
            traces.see(batch)
        return [TracedRecord(*each) for each in traces.to_form().get("traced", ())]

    all_of_them, few, none = traced(100), traced(2), traced(0)
    assert [each.offset for each in sorted(all_of_them, key=lambda each: each.offset)] == list(range(40))
    assert {each.offset: each.parent[3:35] for each in all_of_them} == dict(enumerate(kept))
    assert {each.offset for each in all_of_them if each.kind == "MalformedPayload"} == {0, 10, 20, 30}
    assert [(each.offset, bool(each.kind)) for each in few] == [(1, False), (2, False), (0, True), (10, True)]
    assert none == []
    plainly()
    assert (traced(100), traced(2), traced(0)) == (all_of_them, few, none)


def test_pools_send_spans_and_metrics_by_the_environment_alone_and_nothing_where_it_says_so(
    tmp_path: Path, cluster: Cluster, receiver: OtlpReceiver
) -> None:
    topic, trace = cluster.make_topic(1), "0af7651916cd43dd8448eb211c803105"
    cluster.produce(topic, [b"1"], headers=parent(trace))
    letters = unique("dlq")
    script = f"""
        import asyncio, json, sys
        import forebay

        async def work(group):
            async def handle(record):
                raise ValueError({SECRET!r})
            pool = forebay.Pool(
                bootstrap_servers={cluster.bootstrap_servers!r}, topics=[{topic!r}], group_id=group, max_attempts=1,
                dead_letter_topic={letters!r},
            )
            await pool.start(handle)
            while not pool.stats().dead_letters:
                await asyncio.sleep(0.02)
            await pool.stop()

        asyncio.run(work(sys.argv[1] if len(sys.argv) > 1 else {unique("group")!r}))
        print(json.dumps({{"sdk": "opentelemetry.sdk" in sys.modules}}))
    """
    assert run(tmp_path, script, receiver)["sdk"]
    [span] = [each for each in receiver.spans if each.name == f"process {topic}"]
    assert [link.trace_id.hex() for link in span.links] == [trace]
    [letter] = [each for each in receiver.spans if each.name == f"send {letters}"]
    assert letter.trace_id.hex() == trace
    assert attributes(letter.attributes)["error.type"] == "ValueError"
    assert receiver.metrics["forebay.pool.dead_letters"].sum.data_points[0].as_int == 1
    assert not any(SECRET.encode() in body for body in receiver.raw)  # nor in the words of an error
    before = len(receiver.raw)
    for env in ({"OTEL_SDK_DISABLED": "true"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}):
        other = script.replace("sys.argv[1]", repr(unique("group"))).replace("len(sys.argv) > 1", "True")
        assert not run(tmp_path, other, receiver, **env)["sdk"]  # it is not even imported
    assert len(receiver.raw) == before
