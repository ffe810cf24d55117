"""The pool's other faces: formats, dead letters for the tools of sources, metrics, spans, the command, the examples."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from examples.pool import http_calls, metrics, orders, retry, simple, transactional
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pools import committed, ends, pool_on, run_until
from support import Cluster, unique
from terminals import terminal
from waiting import eventually, until

from forebay.deadletter.letter import Letter
from forebay.deadletter.letterbox import Letterbox, LetterReader, Place
from forebay.deadletter.outcomes import Outcomes
from forebay.errors import NoColumnsError, OptionConflictError, OptionValueError
from forebay.kafka.options import KAFKA
from forebay.pool import Record, tracing

# -- formats -----------------------------------------------------------------------------------------


def values_of(
    cluster: Cluster, payloads: list[bytes | None], **settings: Any
) -> tuple[list[Any], list[Letter]]:
    """What a handler is given of these payloads, and the letters of those that it is not given."""
    topic, letters = cluster.make_topic(1), unique("letters")
    cluster.produce(topic, payloads)
    seen: list[Any] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    pool = pool_on(cluster, topic, order="partition", dead_letter_topic=letters, name="typed", **settings)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == len(payloads)))
    assert committed(cluster, pool, topic) == ends(cluster, topic)
    return seen, letters_in(cluster, letters, "typed")


def letters_in(cluster: Cluster, topic: str, source: str) -> list[Letter]:
    """As `forebay dlq` reads them."""
    options = KAFKA.bind({"bootstrap.servers": cluster.bootstrap_servers, "topic": "t", "group.id": "g"})
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Outcomes(Path(folder) / "outcomes.db")
        try:
            reader = LetterReader(source, Letterbox(Place(topic=topic), options), outcomes, source)
            return sorted((entry.letter for entry in reader.entries()), key=lambda letter: letter.identity)
        finally:
            outcomes.close()


def test_json_is_what_the_text_says_and_what_is_no_json_becomes_a_letter_at_once(cluster: Cluster) -> None:
    seen, letters = values_of(cluster, [b'{"id": 1}', b"{", None, b"[2]"], format="json")
    assert seen == [{"id": 1}, None, [2]]
    assert [(letter.offset, letter.kind, letter.value) for letter in letters] == [
        (1, "MalformedPayload", b"{")
    ]


def test_columns_make_values_typed_as_those_of_a_source(cluster: Cluster) -> None:
    payloads = [b'{"id": 1, "name": "a", "more": 0}', b'{"id": "x"}', b'{"name": "b"}', b'{"id": 2}']
    seen, letters = values_of(cluster, payloads, format="json", columns="id BIGINT NOT NULL, name STRING")
    assert seen == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert [letter.kind for letter in letters] == ["TypeConversion", "SchemaMismatch"]


def test_avro_has_the_columns_of_its_schema(cluster: Cluster) -> None:
    schema = {"type": "record", "name": "t", "fields": [{"name": "id", "type": "long"}]}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, {"id": 7})
    seen, letters = values_of(
        cluster, [buffer.getvalue(), b""], format="avro", avro_schema=json.dumps(schema)
    )
    assert seen == [{"id": 7}]
    assert len(letters) == 1


def test_a_change_of_a_database_is_what_was_done_with_the_row_before_and_after(cluster: Cluster) -> None:
    alice, bob = {"id": 1, "name": "Alice"}, {"id": 1, "name": "Bob"}
    events = [
        {"op": "c", "ts_ms": 1, "before": None, "after": alice},
        {"schema": None, "payload": {"op": "u", "ts_ms": 2, "before": alice, "after": bob}},
        {
            "op": "u",
            "ts_ms": 3,
            "before": None,
            "after": {**alice, "more": 0},
        },  # the database logs no old rows
        {"op": "d", "ts_ms": 4, "before": bob, "after": None},
        {"op": "t", "ts_ms": 5},
        {"id": 1},
    ]
    payloads: list[bytes | None] = [json.dumps(event).encode() for event in events]
    payloads.insert(4, None)
    columns = "id BIGINT NOT NULL, name STRING"
    seen, letters = values_of(cluster, payloads, format="debezium-json", columns=columns)
    assert seen == [
        {"op": "c", "ts_ms": 1, "before": None, "after": alice},
        {"op": "u", "ts_ms": 2, "before": alice, "after": bob},
        {"op": "u", "ts_ms": 3, "before": None, "after": alice},
        {"op": "d", "ts_ms": 4, "before": bob, "after": None},
        None,
    ]
    assert [(letter.offset, letter.kind) for letter in letters] == [(5, "Other"), (6, "SchemaMismatch")]


def test_a_format_that_cannot_know_its_columns_says_so(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)

    async def handle(record: Record) -> None: ...

    with pytest.raises(NoColumnsError, match="needs 'columns'"):
        asyncio.run(pool_on(cluster, topic, format="csv").run(handle))
    with pytest.raises(OptionValueError, match="columns"):
        asyncio.run(pool_on(cluster, topic, format="csv", columns="id BIGINT,, x").run(handle))


# -- dead letters ------------------------------------------------------------------------------------


def test_a_dead_letter_of_a_handler_is_the_record_with_the_reason_and_durable_before_its_offset(
    cluster: Cluster,
) -> None:
    topic, letters = cluster.make_topic(1), unique("letters")
    cluster.produce(topic, [b"bad"], key=b"k", headers=[("h", b"1")], timestamp=1_700_000_000_000)

    async def handle(record: Record) -> None:
        raise LookupError("no such customer")

    pool = pool_on(cluster, topic, dead_letter_topic=letters, max_attempts=2, name="billing")
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == 1))
    (letter,) = letters_in(cluster, letters, "billing")
    assert letter.identity == (topic, 0, 0, "")
    assert (letter.key, letter.value, letter.headers) == (b"k", b"bad", (("h", b"1"),))
    assert (letter.kind, letter.message, letter.timestamp_ms) == (
        "LookupError",
        "no such customer",
        1_700_000_000_000,
    )
    assert committed(cluster, pool, topic) == {0: 1}
    assert letter.stacktrace is not None
    assert letter.stacktrace.endswith("LookupError: no such customer\n")
    assert "in handle" in letter.stacktrace


def test_a_pool_that_would_read_its_own_letters_is_refused(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)

    async def handle(record: Record) -> None: ...

    with pytest.raises(OptionConflictError, match="itself reads"):
        asyncio.run(pool_on(cluster, topic, dead_letter_topic=topic).run(handle))


# -- watching ----------------------------------------------------------------------------------------


def test_metrics_are_served_with_the_groups_lag(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"] * 20)

    async def handle(record: Record) -> None:
        if record.offset >= 15:
            await asyncio.sleep(3600)

    pool = pool_on(cluster, topic, metrics_port=0, name="metered", shutdown_timeout_ms=0)

    async def main() -> str:
        await pool.start(handle)
        await until(
            lambda: pool.stats().partitions and pool.stats().partitions[0].lag == 5, "the lag is known"
        )
        assert pool.metrics is not None
        address = f"http://localhost:{pool.metrics.port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read().decode())
        await pool.stop()
        return text

    lines = set(asyncio.run(main()).splitlines())
    group = pool.options["group.id"]
    assert 'forebay_pool_records_total{pool="metered"} 15.0' in lines
    assert 'forebay_pool_workers{pool="metered"} 5.0' in lines
    assert f'kafka_consumergroup_lag{{consumergroup="{group}",partition="0",topic="{topic}"}} 5.0' in lines
    assert 'forebay_pool_handler_seconds_bucket{le="+Inf",pool="metered"} 15.0' in lines


def test_each_handler_runs_in_a_span_that_is_linked_to_its_producers(
    cluster: Cluster, spans: InMemorySpanExporter
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"], headers=[("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")])

    async def handle(record: Record) -> None:
        if record.attempt == 1:
            raise ConnectionError("not now")

    pool = pool_on(cluster, topic)
    asyncio.run(run_until(pool, handle, lambda: pool.stats().completed == 1))
    failed, handled = spans.get_finished_spans()
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ConnectionError"
    assert handled.name == f"process {topic}"
    assert dict(handled.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": pool.options["group.id"],
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert [f"{link.context.trace_id:032x}" for link in handled.links] == ["a" * 32]


def test_without_a_tracer_provider_handlers_are_called_as_they_are() -> None:
    async def handle(record: Record) -> None: ...

    assert tracing.traced(handle, "g") is handle


# -- the command -------------------------------------------------------------------------------------

HANDLERS = """
import asyncio, os, sys, time
async def handle(record):
    await asyncio.sleep(0.001)
    with open("handled.txt", "a") as file:
        file.write(f"{record.offset}\\n")
def fail(record):
    raise ValueError("never")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(HANDLERS)
    return tmp_path


def command(cluster: Cluster, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "pool", "run", *arguments],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_command_runs_a_handler_until_it_has_caught_up(cluster: Cluster, folder: Path) -> None:
    topic, group = cluster.make_topic(2), unique("group")
    cluster.produce(topic, [b"x"] * 50)
    process = command(
        cluster, folder, "mine:handle", "-t", topic, "-g", group, "--until-caught-up", "--timeout", "60",
        "--set", "commit.interval.ms=200",
    )  # fmt: skip
    out, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert out == ""
    assert "50 records" in said
    assert len((folder / "handled.txt").read_text().split()) == 50
    assert cluster.committed(group, topic) == {0: 25, 1: 25}


def test_the_command_ends_in_order_at_sigterm_and_with_the_error_that_halts_it(
    cluster: Cluster, folder: Path
) -> None:
    topic, group = cluster.make_topic(1), unique("group")
    cluster.produce(topic, [b"x"] * 20)
    process = command(cluster, folder, "mine:handle", "-t", topic, "-g", group)
    eventually(lambda: (folder / "handled.txt").exists(), "it is at work")
    eventually(lambda: len((folder / "handled.txt").read_text().split()) == 20, "all is handled")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert cluster.committed(group, topic) == {0: 20}
    halting = command(
        cluster, folder, "mine:fail", "-t", topic, "-g", unique("group"), "--set", "max.errors=0", "--set",
        "max.attempts=1",
    )  # fmt: skip
    _, said = halting.communicate(timeout=60)
    assert halting.returncode == 1
    assert "FB4020" in said
    assert "never" in said
    assert "Traceback" not in said
    assert " lag 0" not in said  # twenty records wait


def test_the_traceback_of_a_handler_is_in_the_log_that_says_more(cluster: Cluster, folder: Path) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b"x"])
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "-v", "pool", "run", "mine:fail", "-t", topic, "-g", unique("group"),
         "--set", "max.attempts=1", "--set", f"dead.letter.topic={unique('letters')}", "--until-caught-up"],
        cwd=folder, env=environment, text=True, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert "becomes a dead letter after 1 attempts" in done.stderr
    assert 'raise ValueError("never")' in done.stderr


def test_a_live_view_fits_a_narrow_terminal_and_the_log_does_not_tear_it(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.make_topic(3)
    cluster.produce(topic, [b"x"] * 30)
    monkeypatch.chdir(folder)
    with terminal(
        folder, "pool", "run", "mine:fail", "-t", topic, "-g", unique("group"), "--set", "max.attempts=1",
        "--set", "on.error=skip", "--until-caught-up", columns=80, window=True, KAFKA_BOOTSTRAP_SERVERS=cluster.bootstrap_servers,
    ) as shown:  # fmt: skip
        screen = shown.screen()
    skips = [line for line in screen if "is skipped after 1 attempts" in line]
    assert len(skips) == 30
    assert all(line.startswith("forebay: ") for line in skips)
    assert sum("30 records" in line and "30 skipped" in line for line in screen) == 1  # one line, once
    assert sum(line.startswith(("  partition", " partition")) for line in screen) == 1


@pytest.mark.parametrize("handler", ["mine", "nowhere:handle", "mine:nothing"])
def test_a_handler_that_is_not_there_is_wrong_use(cluster: Cluster, folder: Path, handler: str) -> None:
    process = command(cluster, folder, handler, "-t", "t", "-g", "g")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "Traceback" not in said


# -- the examples ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> str:
    orders.fill(cluster.bootstrap_servers, 1000, "invoices")
    return cluster.bootstrap_servers


def test_the_examples_do_what_they_say(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(simple.main(servers))
    assert "1000 orders" in capsys.readouterr().out
    asyncio.run(retry.main(servers))
    assert "dead letters in orders-dlq" in capsys.readouterr().out
    asyncio.run(metrics.main(servers))
    assert 'forebay_pool_records_total{pool="metered"}' in capsys.readouterr().out
    asyncio.run(transactional.main(servers))
    assert "as many invoices" in capsys.readouterr().out
    server = ThreadingHTTPServer(("localhost", 0), http_calls.Service)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    asyncio.run(http_calls.main(servers, server.server_port))
    server.shutdown()
    server.server_close()
    serving.join()
    assert "orders posted" in capsys.readouterr().out
