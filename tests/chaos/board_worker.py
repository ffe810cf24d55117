"""A process of agents that ends itself at a chosen moment: SIGKILL, or SIGSTOP for a zombie.

`board_worker.py SERVERS PREFIX NODE TRANSACTIONS POINT NTH SIGNAL`. The points are those of a transaction, in order:
`produce` (an output is handed to the client), `mark` (the mark is), `offsets` (they are part of the transaction),
`commit` (it is committed, and nobody here knows yet); without transactions `written` is when outputs and marks are in
the log and the offset is not. `none` works on until it is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from forebay.blackboard import Artifact, KafkaBlackboardStore, Orchestrator
from forebay.blackboard import store as stores
from forebay.kafka.producer import KafkaProducer
from forebay.pool import transactions

SERVERS, PREFIX, NODE, TRANSACTIONS, POINT, NTH, SIGNAL = sys.argv[1:]
_left = int(NTH)


def reached(point: str) -> None:
    global _left
    if point == POINT:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), getattr(signal, SIGNAL))


class Mortal(KafkaProducer):
    """The real producer, in a process that may end between its calls."""

    def produce(self, topic: str, *values: Any, **more: Any) -> None:
        super().produce(topic, *values, **more)
        if topic.endswith(".processed"):
            super().flush(10)  # so that the broker has it
            reached("mark")
        elif topic.endswith(".artifacts"):
            super().flush(10)
            reached("produce")

    def send_offsets_to_transaction(self, *values: Any) -> None:
        super().send_offsets_to_transaction(*values)
        reached("offsets")

    def commit_transaction(self, *values: Any) -> None:
        super().commit_transaction(*values)
        reached("commit")


class Store(stores.KafkaBlackboardStore):
    async def _write(self, records: Any) -> Any:
        placed = await super()._write(records)
        reached("written")
        return placed


async def answer(given: Artifact) -> Artifact:
    await asyncio.sleep(0.001)
    return Artifact("Reply", {"to": given.payload["n"]}, "answering", correlation_id=given.correlation_id)


async def main() -> None:
    store: KafkaBlackboardStore = Store(
        SERVERS, topic_prefix=PREFIX, partitions=4, transactions=TRANSACTIONS == "true", transactional_id=NODE
    )
    team = Orchestrator(
        store,
        f"{PREFIX}agents",
        commit_interval_ms=50,
        session_timeout_ms=6_000,
        # A member that comes back under its name need not wait until the group has missed it.
        kafka={"group.instance.id": NODE},
    )
    team.subscribe("answering", "Order", answer)
    print("at work", flush=True)
    await team.run()


if __name__ == "__main__":
    transactions.KafkaProducer = Mortal  # type: ignore[misc]
    asyncio.run(main())
