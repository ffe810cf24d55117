"""Prometheus metrics of a pool, fetched as Prometheus would."""

from __future__ import annotations

import asyncio
import urllib.request

import forebay
from examples.pool.orders import orders

COUNT = 1000


async def handle(record: forebay.Record) -> None:
    await asyncio.sleep(0.002)


async def main(servers: str) -> None:
    pool = forebay.Pool(
        bootstrap_servers=servers,
        topics=["orders"],
        group_id="metered",
        commit_interval_ms=200,
        metrics_port=0,
    )
    pool.handler(handle)
    async with pool:
        while pool.stats().completed < COUNT:
            await asyncio.sleep(0.01)
        assert pool.metrics is not None
        address = f"http://localhost:{pool.metrics.port}/metrics"
        text = (await asyncio.to_thread(urllib.request.urlopen, address)).read().decode()
    for line in text.splitlines():
        if line.startswith(
            ("forebay_pool_records", "forebay_pool_handler_seconds_sum", "kafka_consumergroup_lag")
        ):
            print(line)


if __name__ == "__main__":
    with orders(COUNT) as servers:
        asyncio.run(main(servers))
