"""Claim: records/s of every format, end to end, and that several schema ids in a topic cost little.

The same trades in each format, read by a view that counts and sums, stock Spark's `from_json`, `from_avro` and
`from_csv` beside it where it has such a function, and LaminarDB, which reads Avro from a registry only. Schemas of
a registry are a real one's: one id in a topic, and three of them mixed record by record.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from rich.console import Console

from benchmarks import topics
from benchmarks.contest import answer, settled
from benchmarks.peers import forebay_sql, laminar, spark_sql
from benchmarks.peers.contract import Peer
from benchmarks.peers.environment import PeerError
from benchmarks.peers.session import Job, Opening, Reading, Timing
from benchmarks.records import long, values, varint
from benchmarks.report import Grid, Section, Spread
from benchmarks.runner import prepare
from benchmarks.sessions import PeerSession
from benchmarks.shapes import avro_schema
from forebay.devstack import DevStack

PARTITIONS = 4
WARMUP_RECORDS = 50_000
TIMEOUT_S = 600.0
MIXED_TIMES = 4
MIXED = 0.90  # three ids at least so fast, of one
TITLE = "Every format, end to end"
ONE, THREE = "avro, registry, 1 id", "avro, registry, 3 ids"
PROTO = (
    'syntax = "proto3"; message Trade { int64 trade_id = 1; string symbol = 2; double price = 3; '
    "int32 quantity = 4; string side = 5; string venue = 6; int64 event_time = 7; }"
)
PEERS = (forebay_sql.PEER, spark_sql.PEER, laminar.PEER)
Make = Callable[[int], Iterator[bytes]]


@dataclass(frozen=True)
class Form:
    """A topic's format, how its values are made, and which peers read it, too."""

    name: str
    format: str
    make: Make
    peers: tuple[Peer, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    times: int = 1  # so many times the records: where a few per cent decide, a second of reading is noise


def rows(records: int) -> Iterator[dict[str, Any]]:
    return map(orjson.loads, values("json", "medium", records))


def csv(records: int) -> Iterator[bytes]:
    return (",".join(map(str, row.values())).encode() for row in rows(records))


def debezium(records: int) -> Iterator[bytes]:
    return (
        b'{"before":null,"after":%s,"op":"c","ts_ms":1}' % value
        for value in values("json", "medium", records)
    )


def protobuf(records: int) -> Iterator[bytes]:
    for row in rows(records):
        text = [(2, row["symbol"]), (5, row["side"]), (6, row["venue"])]
        yield b"".join(
            [
                b"\x08" + varint(row["trade_id"]),
                *(varint(number << 3 | 2) + varint(len(part)) + part.encode() for number, part in text),
                b"\x19" + struct.pack("<d", row["price"]),
                b"\x20" + varint(row["quantity"]),
                b"\x38" + varint(row["event_time"]),
            ]
        )


def framed(ids: list[int]) -> Make:
    """Each record by the next of these ids: the plain schema, one with a field more, one with two more."""
    more = (b"", long(4) + b"desk", long(4) + b"desk" + long(7))

    def make(records: int) -> Iterator[bytes]:
        heads = [b"\0" + id.to_bytes(4, "big") for id in ids]
        for number, value in enumerate(values("avro", "medium", records)):
            yield heads[number % len(ids)] + value + more[number % len(ids)]

    return make


def register(url: str, topic: str, count: int) -> list[int]:
    """So many versions of the trade's schema, each with a field more than the one before."""
    client, plain = SchemaRegistryClient({"url": url}), json.loads(avro_schema("medium"))
    added = [
        {"name": "desk", "type": "string", "default": ""},
        {"name": "book", "type": "long", "default": 0},
    ]
    texts = [json.dumps({**plain, "fields": [*plain["fields"], *added[:more]]}) for more in range(count)]
    return [client.register_schema(f"{topic}-value", Schema(text, "AVRO")) for text in texts]


def forms(url: str) -> list[Form]:
    def registered(name: str, count: int) -> Form:
        ids: list[int] = []
        for part in (
            "",
            "-warmup",
            "-empty",
        ):  # a topic has a subject of its own; the same text has the same id
            ids = register(url, f"{_topic(name)}{part}", count)
        return Form(name, "avro", framed(ids), (laminar.PEER,), {"schema.registry.url": url}, MIXED_TIMES)

    stock = spark_sql.PEER
    return [
        Form("json", "json", lambda n: values("json", "medium", n), (stock, laminar.PEER)),
        Form(
            "avro",
            "avro",
            lambda n: values("avro", "medium", n),
            (stock,),
            {"avro.schema": avro_schema("medium")},
        ),
        registered(ONE, 1),
        registered(THREE, 3),
        Form("protobuf", "protobuf", protobuf, options={"protobuf.schema": PROTO}),
        Form("debezium-json", "debezium-json", debezium, (stock,)),
        Form("csv", "csv", csv, (stock,)),
        Form("raw", "raw", lambda n: values("json", "medium", n), (stock,)),
    ]


def measure(console: Console, records: int = 1_000_000, rounds: int = 3, only: str = "") -> Section:
    timings: dict[tuple[str, str], list[Timing]] = {}
    with DevStack(registry=True) as stack, ExitStack() as ends:
        every = [form for form in forms(str(stack.schema_registry_url)) if only in form.name]
        for form in every:
            console.print(f"producing {records * form.times:,} records: {form.name}")
            for size, name in ((records * form.times, ""), (WARMUP_RECORDS, "-warmup"), (400, "-empty")):
                topics.fill(
                    stack.bootstrap_servers, _topic(form.name) + name, form.make(size), size, PARTITIONS
                )
        sessions = {peer: _session(peer, stack, ends) for peer in PEERS}
        failed: dict[str, None] = {}
        for number in range(rounds):
            for form in every if number % 2 == 0 else every[::-1]:
                for peer in (forebay_sql.PEER, *form.peers):
                    try:
                        timing = _read(sessions[peer], form, records * form.times)
                    except PeerError as error:
                        if peer is forebay_sql.PEER:
                            raise
                        failed[f"{peer.name}, {form.name}, failed: {error}"] = None
                        continue
                    timings.setdefault((form.name, peer.name), []).append(timing)
                    console.print(
                        f"round {number + 1} of {rounds}, {form.name}, {peer.name}: {timing.rate:,.0f} records/s"
                    )
    rates = {
        key: [each.records / (each.wall_s - each.start_wall_s) for each in settled(found)]
        for key, found in timings.items()
    }
    intro = (
        f"{records:,} trades of seven fields in {PARTITIONS} partitions, four times as many where ids "
        f"are counted; a view that counts and sums. Net of the "
        f"query's median start; {rounds} rounds in turn, median and range."
    )
    ours, *others = [peer.name for peer in PEERS]
    grid = Grid(
        ("format", *(f"{peer.name} records/s" for peer in PEERS), *(f"{ours} / {name}" for name in others)),
        tuple(
            (form.name, *(_shown(rates.get((form.name, peer.name))) for peer in PEERS), *(
                _ratio(rates.get((form.name, ours)), rates.get((form.name, name))) for name in others
            ))
            for form in every
        ),
    )  # fmt: skip
    return Section(TITLE, intro, (grid,), (*_mixed(rates, ours), *failed))


def _mixed(rates: Mapping[tuple[str, str], Sequence[float]], ours: str) -> Iterator[str]:
    one, three = (rates.get((name, ours), ()) for name in (ONE, THREE))
    mixed = Spread.of([b / a for a, b in zip(one, three, strict=True)])
    if mixed is not None:
        holds = "holds" if mixed.median >= MIXED else "**does not hold**"
        yield f"Three schema ids mixed in a topic / one: **{mixed.show()}**; at least {MIXED:.2f} {holds}."


def _topic(name: str) -> str:
    return "formats-" + name.replace(", ", "-").replace(" ", "-")


def _session(peer: Peer, stack: DevStack, ends: ExitStack) -> PeerSession:
    ready = prepare(peer)
    if isinstance(ready, str):
        raise PeerError(ready)
    made = PeerSession(peer, ready, Opening(stack.bootstrap_servers, ""))
    ends.callback(made.close)
    return made


def _read(session: PeerSession, form: Form, records: int) -> Timing:
    def reading(part: str, size: int) -> Reading:
        topic = _topic(form.name) + part
        return Reading(topic, size, PARTITIONS, form.format, "count", "medium", size, options=form.options)

    job = Job(reading("", records), reading("-empty", 400), reading("-warmup", WARMUP_RECORDS))
    timing = session.ask(job, TIMEOUT_S)
    [count, total] = timing.answer[""]
    right = answer("count", records)[""]
    if count != records or (form.format != "raw" and total != right[1]):
        raise PeerError(f"{form.name}: {count:,} records and a sum of {total:,}, not {right}")
    return timing


def _shown(found: list[float] | None) -> str:
    spread = Spread.of(found or [])
    return spread.show(0) if spread else ""


def _ratio(ours: list[float] | None, theirs: list[float] | None) -> str:
    spread = Spread.of([a / b for a, b in zip(ours or [], theirs or [], strict=False)])
    return spread.show() if spread else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help='formats with this in their name: "registry"')
    given = parser.parse_args()
    measure(Console(stderr=True), given.records, given.rounds, given.only).show(Console())


if __name__ == "__main__":
    main()
