"""Forebay's pool with an async handler, one process."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

import forebay
from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.pools import PoolCase, PoolTiming
from benchmarks.peers.session import Opening, serve
from forebay.pool.loop import run

PEER = Peer("Forebay", "benchmarks.peers.forebay_pool", lambda _: Prepared(sys.executable))


class Counting:
    """Counts records, and looks at the clocks at the first and the last."""

    def __init__(self, case: PoolCase) -> None:
        self._wait_s = case.wait_ms / 1000
        self._left = case.records
        self._first = (0.0, 0.0)
        self.timing: PoolTiming | None = None
        self.ended = asyncio.Event()
        self._records = case.records

    def handler(self, batches: bool) -> Callable[[Any], Awaitable[None]]:
        sleep, wait_s = asyncio.sleep, self._wait_s

        async def nothing(record: Any) -> None:
            self.count(1)

        async def waiting(record: Any) -> None:
            if not self._first[0]:
                self._first = time.monotonic(), time.process_time()
            await sleep(wait_s)
            self.count(1)

        async def many(records: Any) -> None:
            self.count(len(records))

        return many if batches else waiting if wait_s else nothing

    def count(self, records: int) -> None:
        if not self._first[0]:
            self._first = time.monotonic(), time.process_time()
        self._left -= records
        if self._left <= 0 and self.timing is None:
            wall, cpu = self._first
            self.timing = PoolTiming(self._records, time.monotonic() - wall, time.process_time() - cpu)
            self.ended.set()


class ForebayPool:
    version = forebay.__version__

    def __init__(self, opening: Opening) -> None:
        self._servers = opening.bootstrap_servers

    def handle(self, question: Mapping[str, Any]) -> dict[str, Any]:
        case = PoolCase.from_json(question)
        found: list[PoolTiming] = []

        async def main() -> None:
            pool = forebay.Pool(
                bootstrap_servers=self._servers,
                topics=[case.topic],
                group_id=case.group,
                workers=case.workers,
                order=case.order,
                batch_size=case.batch or None,
            )
            counting = Counting(case)
            await pool.start(counting.handler(bool(case.batch)))
            await counting.ended.wait()
            await pool.stop()
            assert counting.timing is not None
            found.append(counting.timing)

        run(main())
        return asdict(found[0])

    def close(self) -> None:
        """Nothing is kept between cases."""


if __name__ == "__main__":
    serve(ForebayPool, ForebayPool.handle)
