"""A hundred slow calls at a time: 1000 orders of 50 ms each take less than a second instead of fifty."""

from __future__ import annotations

import asyncio
import time

import forebay
from examples.pool.orders import orders

COUNT = 1000


async def main(servers: str) -> None:
    pool = forebay.Pool(
        bootstrap_servers=servers, topics=["orders"], group_id="billing", workers=100, format="json"
    )
    first = 0.0
    total = 0

    @pool.handler
    async def bill(record: forebay.Record) -> None:
        nonlocal first, total
        first = first or time.monotonic()
        await asyncio.sleep(0.05)  # a call to a slow service
        total += record.value["amount"]

    async with pool:
        while pool.stats().completed < COUNT:
            await asyncio.sleep(0.01)
        print(f"{COUNT} orders, {total} in all, in {time.monotonic() - first:.1f} s")


if __name__ == "__main__":
    with orders(COUNT) as servers:
        asyncio.run(main(servers))
