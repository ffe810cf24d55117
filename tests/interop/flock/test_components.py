"""What the components promise to a Flock program in one process."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import pytest
from flock.components.agent import EngineComponent
from flock.core import Flock
from flock.core.artifacts import Artifact
from flock.registry import flock_type
from flock.utils.runtime import EvalResult
from pydantic import BaseModel

from forebay.blackboard.flock import (
    DurableDeduplicationComponent,
    KafkaBlackboardStore,
    KafkaSchedulingComponent,
)
from forebay.errors import BlackboardError

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]


@flock_type(name="ComponentsInput")
class Input(BaseModel):
    n: int


@flock_type(name="ComponentsOutput")
class Output(BaseModel):
    n: int


class Engine(EngineComponent):
    ran: list[int]

    async def evaluate(self, agent: Any, ctx: Any, inputs: Any, output_group: Any) -> EvalResult:
        self.ran.append(inputs.artifacts[0].payload["n"])
        return EvalResult.from_object(Output(n=1), agent=agent)


def program(prefix: str, ran: list[int]) -> Flock:
    flock = Flock(store=KafkaBlackboardStore(SERVERS, topic_prefix=prefix, partitions=2))
    flock.is_dashboard = True  # no banner
    engine = Engine(ran=[])
    engine.ran = ran  # pydantic copies what it is given
    flock.agent("once").consumes(Input).publishes(Output).with_engines(engine)
    return flock.add_component(DurableDeduplicationComponent())


async def test_an_agent_that_is_done_with_an_artifact_is_not_run_again_after_a_restart() -> None:
    prefix, ran = f"flock-{uuid4().hex}.", []
    artifact = Artifact(type="ComponentsInput", payload={"n": 7}, produced_by="test")
    for _ in range(2):
        flock = program(prefix, ran)
        await flock.publish(artifact)
        await flock.run_until_idle()
        found = await flock.store.list_by_type("ComponentsOutput")
        assert len(found) == 1
        await flock.shutdown()
        await flock.store.close()
    assert ran == [7]


async def test_a_component_says_which_store_it_needs() -> None:
    flock = Flock()
    with pytest.raises(BlackboardError, match="InMemoryBlackboardStore"):
        await KafkaSchedulingComponent().on_initialize(flock)


async def test_what_arrives_from_the_log_is_not_written_to_it_again_and_a_change_of_it_is() -> None:
    store = KafkaBlackboardStore(SERVERS, topic_prefix=f"flock-{uuid4().hex}.", partitions=1)
    artifact = Artifact(type="ComponentsInput", payload={"n": 1}, produced_by="test")
    await store.publish(artifact)
    await store.get(artifact.id)
    before = dict(store._written)
    with store.arriving(artifact):
        await store.publish(artifact)
        assert store._written == before
        await store.publish(artifact.model_copy(update={"payload": {"n": 2}}))
    assert (await store.get(artifact.id)).payload == {"n": 2}
    await store.close()
