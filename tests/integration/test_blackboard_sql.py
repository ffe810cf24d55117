"""The log of artifacts in SQL: a source like any other, and agents' dead letters with the usual tools."""

from __future__ import annotations

from pathlib import Path

from boards import artifact, board, run
from sessions import caught_up, connect, name, rows
from support import Cluster, unique
from waiting import until

from forebay.blackboard import Orchestrator, RetryPolicy


def test_artifacts_are_counted_by_type_and_agent_in_sql_and_letters_are_replayed(
    cluster: Cluster, tmp_path: Path
) -> None:
    prefix, source, view, broken = unique("board") + ".", name("artifacts"), name("busy"), [True]

    def shaky(given: object) -> None:
        if broken[0]:
            raise ValueError("out of order")

    async def fill() -> None:
        async with board(cluster, prefix) as store:
            for n in range(10):
                await store.publish(artifact(n, produced_by=f"agent{n % 2}", correlation_id="c"))
            team = Orchestrator(store, prefix, retry=RetryPolicy(attempts=1))
            team.subscribe("shaky", "Order", shaky)
            async with team:
                await until(lambda: team.stats.total("shaky").dead == 10, "all are dead letters")

    async def work_off() -> None:
        async with board(cluster, prefix) as store:
            team = Orchestrator(store, prefix, retry=RetryPolicy(attempts=1))
            team.subscribe("shaky", "Order", shaky)
            async with team:
                await until(lambda: team.stats.total("shaky").handled == 4, "the replayed ones are handled")

    run(fill())
    with connect(tmp_path / "home") as session:
        session.execute(
            f"CREATE SOURCE {source} FROM BLACKBOARD (brokers = '{cluster.bootstrap_servers}', "
            f"topic_prefix = '{prefix}', auto_offset_reset = 'earliest');"
            f"CREATE MATERIALIZED VIEW {view} AS SELECT type, produced_by, correlation_id, count(*) AS n, "
            f"max(created_at) AS newest FROM {source} GROUP BY type, produced_by, correlation_id EMIT CHANGES"
        )
        caught_up(session)
        counted = rows(
            session, f"SELECT type, produced_by, correlation_id, n FROM {view} ORDER BY produced_by"
        )
        assert counted == [("Order", "agent0", "c", 5), ("Order", "agent1", "c", 5)]

        brokers = {"bootstrap.servers": cluster.bootstrap_servers}
        letters = session.dead_letters("shaky", topic=f"{prefix}dlq.shaky", options=brokers)
        assert {(each.letter.source, each.letter.kind) for each in letters} == {("shaky", "ValueError")}
        chosen = letters.where("offset < 4")
        report = chosen.replay()
        assert report.sent == len(list(chosen))
        assert sum(entry.outcome.state == "replayed" for entry in letters) == report.sent == 4
    broken[0] = False
    run(work_off())
