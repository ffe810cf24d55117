"""`forebay consume`: what a topic holds, as text, as JSON lines, or as a source decodes it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.brokers import (
    BrokersOption,
    KafkaConfigOption,
    SetOption,
    client_settings,
    options,
    patiently,
)
from forebay.cli.completion import complete_source
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import plain, words
from forebay.errors import MissingOptionError, OptionValueError, WaitTimeoutError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from forebay.deadletter.masked import LetterMask
    from forebay.kafka.rows import RowDecoder
    from forebay.options import Options


class RecordOutput(StrEnum):
    """How records are written to stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def consume(
    topic: Annotated[
        str | None,
        typer.Argument(help="the topic to read; that of --source if not given", show_default=False),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="beginning, end, an offset, or a time such as 2026-01-15T10:00:00")
    ] = "beginning",
    limit: Annotated[
        int | None, typer.Option("--limit", "-l", min=1, help="end after so many records", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on as records come; Ctrl-C ends it")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="with --follow: end after so many seconds without a record (exit code 4 if --limit is not reached)",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="this partition only", show_default=False)
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            "-s",
            help="decode values as this source of the home does",
            autocompletion=complete_source,
        ),
    ] = None,
    hex_: Annotated[bool, typer.Option("--hex", help="keys and values as hex, in a table")] = False,
    output: Annotated[
        RecordOutput,
        typer.Option(
            "--output", "-o", help="table for people; jsonl is what forebay produce --envelope takes"
        ),
    ] = RecordOutput.TABLE,
    home: HomeOption = DEFAULT_HOME,
    brokers: BrokersOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Print the records of a topic, up to its end or as they come. No consumer group is used or moved.

    Examples:

      forebay consume clicks --limit 10

      forebay consume clicks --from end --follow

      forebay consume clicks --from 2026-01-15T10:00:00 -o jsonl | jq .value

      forebay consume --source orders
    """
    if topic is None and source is None:
        raise MissingOptionError("which topic?", option="topic", remedy="forebay consume TOPIC, or --source")
    bound, decoder, topics, mask = _opened(topic, source, brokers, set_, kafka_config, home)
    # Not KeyboardInterrupt: raised inside the client's C code it comes out as a SystemError.
    stopped = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: stopped.set())
    stream = _messages(bound, topics, start, partition, follow, timeout, limit, stopped)
    try:
        _print(islice(stream, limit), output, hex_, decoder, mask)
        sys.stdout.flush()
    except BrokenPipeError:
        # head has seen enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    finally:
        stream.close()


def _opened(
    topic: str | None,
    source: str | None,
    brokers: str | None,
    pairs: list[str] | None,
    kafka_config: Path | None,
    home: Any,
) -> tuple[Options, RowDecoder | None, list[str] | None, LetterMask | None]:
    """How the brokers are reached, what decodes values, which topics (None: those of the source), and what is masked."""
    if source is None:
        assert topic is not None
        return options(brokers, topic, pairs, kafka_config), None, [topic], None
    from forebay.deadletter.masked import LetterMask
    from forebay.kafka.connector import KafkaSource
    from forebay.kafka.rows import RowDecoder
    from forebay.kafka.topics import settings_of
    from forebay.runtime.home import Home

    with Home(home) as found:
        connector = found.source(source)
    if not isinstance(connector, KafkaSource):
        raise OptionValueError(f"source '{source}' reads no topic", option="source")
    given = dict(connector.options.given) | {"connect.timeout.ms": "5000"}
    if kafka_config is not None:  # a source has settings of its own: others only if this line names them
        given |= client_settings(connector.options["bootstrap.servers"], kafka_config)
    given |= settings_of(pairs or (), "--set")
    if brokers is not None:
        given["bootstrap.servers"] = brokers
    bound = connector.options.table.bind(given)
    decoder, named = RowDecoder(connector.config.schema, bound), None if topic is None else [topic]
    mask = LetterMask(connector.mask, lambda: (connector.config, bound)) if connector.mask else None
    return bound, decoder, named, mask


def _messages(
    bound: Options,
    topics: list[str] | None,
    start: str,
    partition: int | None,
    follow: bool,
    timeout: float | None,
    limit: int | None,
    stopped: threading.Event,
) -> Generator[Message, None, None]:
    """The records, until there are no more to wait for, or Ctrl-C has `stopped` it: the way to end --follow."""
    from forebay.kafka.admin import Cluster, partitions_of
    from forebay.kafka.tail import read, start_of

    cluster = Cluster(bound)
    moved, count = float("inf"), 0  # until the brokers are found nothing can come

    def idle() -> None:
        if stopped.is_set():
            raise _StoppedError
        if timeout is not None and time.monotonic() - moved >= timeout:
            raise _QuietError

    def lost(gone: object) -> None:
        words.print(f"gone before it was read: {gone}", markup=False, highlight=False)

    try:
        known = patiently(lambda: cluster.describe(topics if topics is not None else cluster.matching()))
        keys = [key for key in partitions_of(known) if partition in (None, key[1])]
        if not keys:
            raise OptionValueError(f"there is no partition {partition}", option="partition")
        position = patiently(lambda: start_of(cluster, keys, start))
        moved = time.monotonic()
        for messages in read(cluster, bound, position, follow=follow, idle=idle, lost=lost):
            moved = time.monotonic()
            for message in messages:
                if stopped.is_set():
                    return
                count += 1
                yield message
    except _StoppedError:
        return
    except _QuietError:
        if limit is not None and count < limit:
            raise WaitTimeoutError(
                f"{count:,} of {limit:,} records came within {timeout:g} s of each other"
            ) from None
    finally:
        cluster.close()


class _StoppedError(Exception):
    """Ctrl-C."""


class _QuietError(Exception):
    """Nothing has come for as long as `--timeout` allows."""


def _print(
    messages: Iterator[Message],
    output: RecordOutput,
    hex_: bool,
    decoder: RowDecoder | None,
    mask: LetterMask | None,
) -> None:
    if output is RecordOutput.JSON:
        rows = [_row(message, decoder, mask) for message in messages]
        print(json.dumps(rows, default=plain, indent=2, ensure_ascii=False))
        return
    for message in messages:
        if output is RecordOutput.JSONL:
            print(json.dumps(_row(message, decoder, mask), default=plain, ensure_ascii=False), flush=True)
        else:
            print(_line(message, hex_, decoder, mask), flush=True)


class _Shown:
    """A message without what is masked of it."""

    def __init__(self, message: Message, mask: LetterMask) -> None:
        from forebay.deadletter.masked import as_letter

        self._message, self._letter = message, mask.letter(as_letter(message))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def key(self) -> bytes | None:
        return self._letter.key

    def value(self) -> bytes | None:
        return self._letter.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._letter.headers)


def _row(message: Message, decoder: RowDecoder | None, mask: LetterMask | None) -> dict[str, Any]:
    from forebay.kafka.envelope import to_json

    row = to_json(message if mask is None else _Shown(message, mask))
    return row if decoder is None else row | _decoded(message, decoder, mask)


def _decoded(message: Message, decoder: RowDecoder, mask: LetterMask | None) -> dict[str, Any]:
    """`row` is a row, a list of rows of a change log, or null where the format skips the record; or `error` is why not."""
    batches = list(decoder.decode([message]))
    rejected = [item for batch in batches for item in batch.rejected]
    if rejected:
        first = rejected[0]
        words_ = first.message if mask is None else mask.mask.message(first.message, first.path)
        return {"error": {"kind": first.kind, "message": words_}}
    rows = [row for batch in batches for row in batch.records.to_pylist()]
    if mask is not None:
        rows = [mask.row(row) for row in rows]
    return {"row": rows[0] if len(rows) == 1 else rows or None}


def _line(message: Message, hex_: bool, decoder: RowDecoder | None, mask: LetterMask | None) -> str:
    """Where it is, when it was written, its key and its value, its headers."""
    _, timestamp_ms = message.timestamp()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp_ms / 1000)) + f".{timestamp_ms % 1000:03}"
    shown = message if mask is None else _Shown(message, mask)
    value = _shown(shown.value(), hex_)
    if decoder is not None:
        found = _decoded(message, decoder, mask)
        wrong = found.get("error")
        value = (
            f"{wrong['kind']}: {wrong['message']}"
            if wrong
            else json.dumps(found["row"], default=plain, ensure_ascii=False)
        )
    headers = _headers(shown.headers() or (), hex_)
    key = _shown(shown.key(), hex_)
    return f"{message.partition()}/{message.offset()}  {when}  {key}  {value}{headers}"


def _headers(headers: Sequence[tuple[str, bytes | None]], hex_: bool) -> str:
    return "".join(f"  {name}={_shown(data, hex_)}" for name, data in headers)


def _shown(data: bytes | None, hex_: bool) -> str:
    """Text where it is printable, hex where not: a control character must not reach a terminal."""
    from forebay.kafka.envelope import text_of

    if data is None:
        return "null"
    text = None if hex_ else text_of(data)
    return text if text is not None and text.isprintable() else f"0x{data.hex()}"
