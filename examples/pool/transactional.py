"""Consume, process, produce and commit in one transaction: each order has exactly one invoice, come what may."""

from __future__ import annotations

import asyncio
import json

import forebay
from examples.pool.orders import orders

COUNT = 1000


async def invoice(record: forebay.Record) -> None:
    order = record.value
    await asyncio.sleep(0.005)
    record.send(
        "invoices", json.dumps({"order": order["id"], "total": order["amount"] * 1.2}), key=record.key
    )


async def main(servers: str) -> None:
    pool = forebay.Pool(
        bootstrap_servers=servers, topics=["orders"], group_id="invoicing", format="json", order="key"
    )
    await pool.transactional("invoicing-1").start(invoice)
    while pool.stats().completed < COUNT:
        await asyncio.sleep(0.01)
    await pool.stop()
    print(f"{COUNT} orders, as many invoices, in {pool.stats().commits} transactions")


if __name__ == "__main__":
    with orders(COUNT, "invoices") as servers:
        asyncio.run(main(servers))
