"""What the tests of a pool's crew share: records of messages that no broker has seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from waiting import until

from forebay.pool import Record
from forebay.pool.crew import Crew, Order
from forebay.pool.lease import Lease


@dataclass
class Message:
    """What a record looks at of the client library's message."""

    number: int
    name: bytes | None = None

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes:
        return b"%d" % self.number

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


def received(keys: list[bytes | None], lease: Lease | None = None) -> list[Record]:
    messages = [Message(number, key) for number, key in enumerate(keys)]
    return (lease or Lease("t", 0)).receive(messages, list(range(len(keys))))


def crash(error: BaseException) -> None:
    raise AssertionError(error)


async def done(crew: Crew, count: int) -> None:
    await until(lambda: crew.completed >= count, f"{count} records are done", 20)


def assert_each_once_in_order(handled: list[int], keys: list[bytes | None], order: Order) -> None:
    """Every offset was handled once, and those that have to come one after another did."""
    assert sorted(handled) == list(range(len(keys)))
    lanes: dict[Any, list[int]] = defaultdict(list)
    for offset in handled:
        lanes[{Order.KEY: keys[offset], Order.PARTITION: 0, Order.UNORDERED: None}[order]].append(offset)
    lanes.pop(None, None)
    assert all(offsets == sorted(offsets) for offsets in lanes.values())
