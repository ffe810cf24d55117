"""The values of the comparison's topics, and the answers that a peer must find in them.

Ids and times differ in each record, the rest repeats, so that millions are made in seconds. Event times
rise over `SPAN_MS` however many records there are: the windows are always the same thirty minutes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson

from benchmarks.shapes import COLUMNS, PRICE_ABOVE, Type

SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA", "TSLA", "V")
VENUES = ("XNAS", "XNYS", "BATS", "ARCX")
FIRST_MS = 1_768_471_200_000  # a full minute
SPAN_MS = 30 * 60_000
MINUTE_MS = 60_000
TEMPLATES = 1_009  # a prime, so that no partition gets one symbol only

_NOTE = "Filled in parts against resting interest; see the desk's log for the order of executions. " * 13

Answer = dict[str, list[int]]
"""Group ("" for all, or "minute in ms/symbol") to [count, sum of quantity]."""


def _template(i: int) -> dict[str, Any]:
    price, quantity, venue = round(100 + i * 37 % 10_000 / 100, 2), 1 + i * 13 % 500, VENUES[i % 4]
    legs = [{"venue": VENUES[(i + n) % 4], "price": price, "quantity": n + 1} for n in range(10)]
    return {
        "symbol": SYMBOLS[i % 8], "price": price, "quantity": quantity, "q": quantity, "p": price,
        "side": "buy" if i % 3 else "sell", "venue": venue,
        "account": {"id": 7_000_000 + i, "name": f"Account {i} of the desk", "country": "CH"},
        "legs": legs, "tags": {f"tag-{n}": f"value {i % 97} of {n}" for n in range(8)}, "note": _NOTE,
    }  # fmt: skip


def values(form: str, size: str, records: int) -> Iterator[bytes]:
    """The values in order. The first column is the id, the last of all but small ones the time."""
    columns = COLUMNS[size]
    first, timed = next(iter(columns)), "event_time" in columns
    middle_names = [n for n in columns if n not in (first, "event_time")]
    rows = [{n: row[n] for n in middle_names} for row in map(_template, range(TEMPLATES))]
    if form == "json":
        middles = [b"," + orjson.dumps(row)[1:-1] for row in rows]
        yield from _json(first.encode(), middles, records, timed)
    else:
        kinds = {"struct": {n: columns[n] for n in middle_names}}
        yield from _avro([encode(row, kinds) for row in rows], records, timed)


def _json(first: bytes, middles: list[bytes], records: int, timed: bool) -> Iterator[bytes]:
    head = b'{"%s":%%d%%s' % first
    if not timed:
        whole = head + b"}"
        yield from (whole % (i, middles[i % TEMPLATES]) for i in range(records))
        return
    whole = head + b',"event_time":%d}'
    for i in range(records):
        yield whole % (i, middles[i % TEMPLATES], FIRST_MS + i * SPAN_MS // records)


def _avro(middles: list[bytes], records: int, timed: bool) -> Iterator[bytes]:
    if not timed:
        yield from (long(i) + middles[i % TEMPLATES] for i in range(records))
        return
    for i in range(records):
        yield long(i) + middles[i % TEMPLATES] + long(FIRST_MS + i * SPAN_MS // records)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_LOW = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]
_high = cache(varint)


def long(number: int) -> bytes:
    """Avro's long, of a number that is not negative. Neighbours share their high bytes: those are kept."""
    zigzag = number << 1
    return _LOW[zigzag & 16_383] + _high(zigzag >> 14) if zigzag >> 14 else varint(zigzag)


def encode(value: Any, kind: Type) -> bytes:
    """An Avro datum by the book; for the parts that repeat."""
    if kind in ("long", "int", "time"):
        return long(value)
    if kind == "double":
        return struct.pack("<d", value)
    if kind == "string":
        return long(len(value.encode())) + value.encode()
    assert not isinstance(kind, str)
    ((nesting, inner),) = kind.items()
    if nesting == "struct":
        return b"".join(encode(value[name], t) for name, t in inner.items())
    if nesting == "array":
        items = b"".join(encode(item, inner) for item in value)
    else:
        items = b"".join(encode(k, "string") + encode(v, inner) for k, v in value.items())
    return long(len(value)) + items + b"\0"


def expected(query: str, records: int) -> Answer:
    """The answer, from the templates alone."""
    rows = [_template(i) for i in range(TEMPLATES)]
    quantity = np.array([row["quantity"] for row in rows], dtype=np.int64)
    passes = np.array([row["price"] > PRICE_ABOVE for row in rows])
    symbol = np.array([SYMBOLS.index(row["symbol"]) for row in rows])
    minutes, kinds = SPAN_MS // MINUTE_MS, len(SYMBOLS)
    counts, sums = np.zeros(minutes * kinds, dtype=np.int64), np.zeros(minutes * kinds, dtype=np.int64)
    for start in range(0, records, 1_000_000):
        index = np.arange(start, min(start + 1_000_000, records), dtype=np.int64)
        group = index * SPAN_MS // records // MINUTE_MS * kinds + symbol[index % TEMPLATES]
        if query == "filter":
            index, group = index[passes[index % TEMPLATES]], group[passes[index % TEMPLATES]]
        counts += np.bincount(group, minlength=len(counts))
        weights = np.bincount(group, weights=quantity[index % TEMPLATES], minlength=len(sums))
        sums += weights.astype(np.int64)  # exact: far below 2**53
    if query != "windows":
        return {"": [int(counts.sum()), int(sums.sum())]}
    return {
        f"{FIRST_MS + g // kinds * MINUTE_MS}/{SYMBOLS[g % kinds]}": [int(counts[g]), int(sums[g])]
        for g in range(len(counts))
        if counts[g]
    }
