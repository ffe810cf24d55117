"""`python -m examples.blackboard`: orders are priced and shipped by agents, one fails and is replayed; about 15 s.

Needs nothing but this project: it starts a broker of its own.
"""

from __future__ import annotations

import asyncio
import contextlib

import forebay
from forebay.blackboard import Artifact, FilterConfig, KafkaBlackboardStore, Orchestrator, RetryPolicy, replay

ORDERS = 20
out_of_stock = {7}


async def price(order: Artifact) -> Artifact:
    await asyncio.sleep(0.01)  # here a model would be asked
    return Artifact("Priced", {**order.payload, "price": order.payload["n"] * 3}, "pricing")


def ship(priced: Artifact) -> Artifact:
    if priced.payload["n"] in out_of_stock:
        raise LookupError(f"order {priced.payload['n']} is out of stock")
    return Artifact("Shipped", dict(priced.payload), "shipping")


async def shipped(store: KafkaBlackboardStore, count: int) -> None:
    """Wait until so many orders are shipped, and show them."""
    while len(await store.list_by_type("Shipped", consistency="latest")) < count:
        await asyncio.sleep(0.1)
    found, total = await store.query_artifacts(FilterConfig(type_names={"Shipped"}), limit=3)
    print(f"{total} orders are shipped, the first: {[each.payload for each in found]}")


async def main(servers: str) -> None:
    # Exactly once: what agents make, that they are done, and the offset are one transaction.
    async with KafkaBlackboardStore(servers, transactions=True) as store:
        agents = Orchestrator(store, "shop", retry=RetryPolicy(attempts=2, backoff_ms=200))
        agents.subscribe("pricing", "Order", price)
        agents.subscribe("shipping", "Priced", ship)
        async with agents:
            for n in range(ORDERS):
                await store.publish(Artifact("Order", {"n": n}, "shop", correlation_id=f"order-{n}"))
            await shipped(store, ORDERS - 1)
            print(
                f"given up on {agents.stats.total('shipping').dead}: its letter is in '{store.topics.dlq('shipping')}'"
            )

            out_of_stock.clear()
            again = await replay(store, "shipping", correlation_id="order-7", types={"Priced"})
            print(f"replayed to agent 'shipping': {again.count}")
            await shipped(store, ORDERS)
        print(await store.summarize_artifacts())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), forebay.DevStack() as stack:
        asyncio.run(main(stack.bootstrap_servers))
