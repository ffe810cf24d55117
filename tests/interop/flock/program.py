"""A Flock program with engines that need no language model: orders are priced, prices are shipped.

`program.py SERVERS PREFIX COUNT`: is ready when it and another have half of the partitions each; publishes COUNT orders
when it is given a line on its standard input, and works until the next one. Writes a line for each run of an agent.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from flock.components.agent import EngineComponent
from flock.core import Flock
from flock.registry import flock_type
from flock.utils.runtime import EvalResult
from pydantic import BaseModel

from forebay.blackboard.flock import KafkaBlackboardStore, KafkaSchedulingComponent

PARTITIONS = 4


@flock_type(name="Order")
class Order(BaseModel):
    n: int


@flock_type(name="Priced")
class Priced(BaseModel):
    n: int
    price: int


@flock_type(name="Shipped")
class Shipped(BaseModel):
    n: int


class Engine(EngineComponent):
    """Calls a plain function where others call a model."""

    makes: Any = None
    takes: Any = None
    who: str = ""

    async def evaluate(self, agent: Any, ctx: Any, inputs: Any, output_group: Any) -> EvalResult:
        given = self.takes(**inputs.artifacts[0].payload)
        print(f"ran {agent.name} {given.n}", flush=True)
        return EvalResult.from_object(self.makes(given), agent=agent)


def build(servers: str, prefix: str) -> tuple[Flock, KafkaSchedulingComponent]:
    flock = Flock(store=KafkaBlackboardStore(servers, topic_prefix=prefix, partitions=PARTITIONS))
    flock.is_dashboard = True  # no banner
    flock.agent("pricing").consumes(Order).publishes(Priced).with_engines(
        Engine(takes=Order, makes=lambda order: Priced(n=order.n, price=order.n * 2))
    )
    flock.agent("shipping").consumes(Priced).publishes(Shipped).with_engines(
        Engine(takes=Priced, makes=lambda priced: Shipped(n=priced.n))
    )
    scheduling = KafkaSchedulingComponent(
        group_id=f"{prefix}workers", pool={"commit_interval_ms": 200, "session_timeout_ms": 6000}
    )
    flock.add_component(scheduling)
    return flock, scheduling


async def main(servers: str, prefix: str, count: int) -> None:
    flock, scheduling = build(servers, prefix)
    await flock.run_until_idle()  # starts the components
    while len(scheduling._pool.stats().partitions) != PARTITIONS // 2:  # there are two of us
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for n in range(count):
        await flock.publish(Order(n=n), correlation_id=f"c{n}")
    print("published", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await flock.shutdown()
    await flock.store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
