"""What fails is tried again without holding up the other customers; what fails for good becomes a dead letter."""

from __future__ import annotations

import asyncio
import random

import forebay
from examples.pool.orders import orders

COUNT = 500


class OutOfStock(Exception):
    """Trying again does not help."""


async def ship(record: forebay.Record) -> None:
    if record.value["id"] % 100 == 13:
        raise OutOfStock(f"order {record.value['id']}")
    if random.random() < 0.2:
        raise ConnectionError("the warehouse did not answer")


async def main(servers: str) -> None:
    pool = forebay.Pool(
        bootstrap_servers=servers,
        topics=["orders"],
        group_id="shipping",
        format="json",
        order="key",  # a customer's orders one after another, customers side by side
        max_attempts=10,
        retry_backoff_ms=20,
        dead_letter_topic="orders-dlq",
        errors={OutOfStock: "dead_letter", ConnectionError: "retry"},
    )
    await pool.start(ship)
    while pool.stats().completed < COUNT:
        await asyncio.sleep(0.01)
    await pool.stop()
    stats = pool.stats()
    print(
        f"{stats.completed} orders, {stats.retries} attempts again, {stats.dead_letters} dead letters in orders-dlq"
    )


if __name__ == "__main__":
    with orders(COUNT) as servers:
        asyncio.run(main(servers))
