"""`forebay produce`: lines of a file or of stdin as records of a topic."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from forebay.cli.brokers import (
    BrokersOption,
    KafkaConfigOption,
    RegistryOption,
    SetOption,
    options,
    patiently,
    registry,
)
from forebay.cli.output import words
from forebay.errors import ForebayError, OptionConflictError, OptionValueError
from forebay.pace import Pace

if TYPE_CHECKING:
    from forebay.kafka.envelope import Envelope

ConvertPayload = Callable[[bytes], bytes]
SAY_AFTER_S, SAY_EVERY_S = 2.0, 2.0


class ValueFormat(StrEnum):
    """What becomes of a line."""

    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


def produce(
    topic: Annotated[str, typer.Argument(help="the topic to write to")],
    file: Annotated[str, typer.Argument(help="a file, a record a line; - is stdin")] = "-",
    envelope: Annotated[
        bool,
        typer.Option(
            "--envelope",
            "-e",
            help='a line is a whole record: {"key": …, "value": …, "headers": {…}, "partition": …, "timestamp": …}',
        ),
    ] = False,
    format: Annotated[
        ValueFormat,
        typer.Option("--format", "-f", help="text: as it stands; json: checked; avro, protobuf: by a schema"),
    ] = ValueFormat.TEXT,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            help="an .avsc or .proto file, which is registered",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="the schema's subject in the registry; TOPIC-value unless given")
    ] = None,
    message: Annotated[
        str | None, typer.Option(help="which message of a .proto file, where there are several")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="so many records a second; as fast as it goes if not given"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="check every line, and write nothing")
    ] = False,
    brokers: BrokersOption = None,
    registry_url: RegistryOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Write records to a topic: each line of a file or of stdin is a value.

    With --envelope a line has key, value, headers, partition and timestamp, as forebay consume -o jsonl prints it. A value
    that is not UTF-8 is value_base64. A null value is a tombstone.

    Examples:

      echo '{"user_id": 1, "url": "/"}' | forebay produce clicks

      forebay produce clicks clicks.jsonl --rate 100

      forebay consume clicks -o jsonl | forebay produce clicks-copy --envelope

      forebay produce orders orders.jsonl --format avro --schema-file order.avsc
    """
    if format not in (ValueFormat.AVRO, ValueFormat.PROTOBUF) and (schema_file or subject or message):
        raise OptionConflictError(
            "--schema-file, --subject and --message need --format avro or protobuf", option="format"
        )
    from forebay.kafka.admin import Cluster
    from forebay.kafka.missing_acls import WRITE
    from forebay.kafka.sender import Sender

    bound = options(brokers, topic, set_, kafka_config)
    cluster = Cluster(bound, WRITE)
    try:
        partitions = patiently(lambda: cluster.describe([topic]))[topic].partitions
    finally:
        cluster.close()
    values: ConvertPayload | None = _checked if format is ValueFormat.JSON else None
    if format in (ValueFormat.AVRO, ValueFormat.PROTOBUF):
        from forebay.kafka.serializing import serializer

        text = schema_file.read_text(encoding="utf-8") if schema_file else None
        write = serializer(
            format.value,
            registry(registry_url),
            topic,
            text=text,
            subject=subject,
            message=message,
            dry_run=dry_run,
        )
        values = lambda data: write(_json(data))  # noqa: E731
    pace, report = Pace(rate), _Report()
    count = 0
    with _opened(file) as lines:
        records = _records(lines, envelope, values, partitions)
        try:
            if dry_run:
                count = sum(1 for _ in records)
            else:
                with Sender(topic, bound) as sender:
                    for record in records:
                        pace.wait()
                        sender.send(record)
                        count += 1
                        report.say(sender.arrived)
        except ForebayError as error:
            if count and not dry_run:
                error.message += f" ({sender.arrived:,} records were written before)"
            raise
    done = "would be written" if dry_run else "written"
    words.print(
        f"{count:,} record{'' if count == 1 else 's'} {done} to {topic}", markup=False, highlight=False
    )


def _records(
    lines: BinaryIO, envelope: bool, values: ConvertPayload | None, partitions: int
) -> Iterator[Envelope]:
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n")
        if (envelope or values is not None) and not text.strip():
            continue
        try:
            record = _record(text, envelope, values)
            if record.partition is not None and record.partition >= partitions:
                raise OptionValueError(
                    f"there is no partition {record.partition}: the topic has {partitions}",
                    option="partition",
                    remedy="make the topic with as many, or leave partitions out: jq -c 'del(.partition)'",
                )
        except OptionValueError as error:
            error.message = f"line {number}: {error.message}"
            raise
        yield record


def _record(text: bytes, envelope: bool, values: ConvertPayload | None) -> Envelope:
    from forebay.kafka.envelope import Envelope, from_json

    if not envelope:
        return Envelope(text if values is None else values(text))
    record = from_json(_text(text))
    if values is None or record.value is None:
        return record
    return replace(record, value=values(record.value))


def _checked(data: bytes) -> bytes:
    _json(data)
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OptionValueError(f"not UTF-8: {error}", option="file") from None


def _json(data: bytes) -> Any:
    try:
        return json.loads(_text(data))
    except ValueError as error:
        raise OptionValueError(f"not JSON: {error}", option="file") from None


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin.isatty():
            words.print("a record a line; Ctrl-D ends", style="dim")
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise OptionValueError(f"there is no file {file}", option="file")
    with path.open("rb") as handle:
        yield handle


class _Report:
    """How many have arrived, now and then, once it takes long."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SAY_AFTER_S

    def say(self, arrived: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SAY_EVERY_S
            words.print(f"{arrived:,} records written …", highlight=False)
