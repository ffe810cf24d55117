"""A blackboard on a broker that asks for a password and goes away: nobody loses anything by it."""

from __future__ import annotations

import asyncio

import pytest
from boards import artifact, board, run
from support import Cluster, unique
from waiting import until

from forebay.blackboard import Artifact, Orchestrator
from forebay.devstack import DevStack
from forebay.errors import AuthError

COUNT = 10


def test_what_is_published_and_answered_while_the_broker_is_away_is_there_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DevStack(security="sasl-ssl") as stack:
        settings = stack.client_settings()
        cluster = Cluster(stack, **settings)
        for name, value in settings.items():
            monkeypatch.setenv("KAFKA_" + name.upper().replace(".", "_"), value)
        monkeypatch.setenv("KAFKA_SASL_PASSWORD", "a wrong one")
        with pytest.raises(AuthError, match="refused") as refused:
            run(board(cluster).start())
        assert "a wrong one" not in str(refused.value)
        monkeypatch.setenv("KAFKA_SASL_PASSWORD", settings["sasl.password"])

        async def work() -> None:
            went_away = asyncio.Event()

            async def answer(given: Artifact) -> Artifact:
                await went_away.wait()  # its result has to wait for the broker
                return Artifact("Reply", {"to": given.payload["n"]}, "answering")

            async with board(cluster, read_timeout_ms=60_000) as store:
                team = Orchestrator(store, unique("agents"))
                team.subscribe("answering", "Order", answer)
                async with team:
                    await store.publish(artifact(0))
                    await asyncio.to_thread(stack.broker.kill)
                    went_away.set()
                    sent = [asyncio.ensure_future(store.publish(artifact(n))) for n in range(1, COUNT)]
                    await asyncio.to_thread(stack.broker.start)
                    await asyncio.gather(*sent)

                    async def answered() -> bool:
                        found = await store.list_by_type("Reply")
                        return {each.payload["to"] for each in found} == set(range(COUNT))

                    await until(answered, "everything is answered", 60)
                found, total = await store.query_artifacts(limit=0)
                assert total == 2 * COUNT, found

        run(work(), 120)
