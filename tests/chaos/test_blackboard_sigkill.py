"""SIGKILL between produce, mark, offset and commit, and zombies that wake up: one committed result for each input.

FOREBAY_CHAOS_BOARD sets how often each point is died at (1).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from boards import artifact, board, run
from support import Cluster, unique
from waiting import eventually, until

from forebay.blackboard import KafkaBlackboardStore
from forebay.blackboard.artifact import decode

TIMES = int(os.environ.get("FOREBAY_CHAOS_BOARD", "1"))
WORKER = Path(__file__).with_name("board_worker.py")
INPUTS, KEYS = 40, 8  # for each time that a worker is started


class Team:
    """Workers of one blackboard."""

    def __init__(self, cluster: Cluster, folder: Path, transactions: bool) -> None:
        self.cluster, self.prefix, self.folder = cluster, unique("board") + ".", folder
        self.transactions = transactions
        self.workers: list[subprocess.Popen[bytes]] = []
        self.published = 0

    def start(
        self, node: str, point: str = "none", nth: int = 1, sig: str = "SIGKILL"
    ) -> subprocess.Popen[bytes]:
        given = [
            self.cluster.bootstrap_servers,
            self.prefix,
            node,
            str(self.transactions).lower(),
            point,
            str(nth),
            sig,
        ]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            self.workers.append(
                subprocess.Popen([sys.executable, str(WORKER), *given], stdout=log, stderr=log)
            )
        return self.workers[-1]

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2_000:] for path in sorted(self.folder.glob("worker-*.log")))

    def publish(self) -> None:
        """Some more inputs: a worker that has nothing to do never comes to the point."""
        numbers = range(self.published, self.published + INPUTS)
        self.published += INPUTS

        async def work() -> None:
            async with board(self.cluster, self.prefix, partitions=4) as store:
                for n in numbers:
                    await store.publish(artifact(n, correlation_id=f"k{n % KEYS}"))

        run(work())

    def finish(self) -> None:
        """Until everything is answered, as a reader of what is committed sees it."""

        async def work() -> None:
            async with KafkaBlackboardStore(
                self.cluster.bootstrap_servers, topic_prefix=self.prefix, partitions=4
            ) as store:

                async def answered() -> bool:
                    found = await store.list_by_type("Reply", consistency="latest")
                    return {each.payload["to"] for each in found} == set(range(self.published))

                await until(answered, f"all are answered; {self.logs()}", 60)

        run(work(), 90)

    def answers(self) -> list[tuple[str, int, str]]:
        """Key, number and id of what is committed in the log, in its order."""
        found = [decode(message.value()) for message in self.cluster.records(f"{self.prefix}artifacts")]
        return [
            (each["correlation_id"], each["payload"]["to"], each["id"])
            for each in found
            if each["type"] == "Reply"
        ]

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


@pytest.fixture
def team(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Team]:
    found = Team(cluster, tmp_path, request.param)
    yield found
    found.end()


def assert_in_order(answers: list[tuple[str, int, str]]) -> None:
    for key in {key for key, _, _ in answers}:
        numbers = [n for each, n, _ in answers if each == key]
        assert numbers == sorted(numbers), key


@pytest.mark.parametrize("team", [True], indirect=True, ids=["exactly-once"])
@pytest.mark.timeout(120 + 60 * TIMES)
def test_each_input_has_one_committed_result_in_order_wherever_a_transaction_is_killed(team: Team) -> None:
    for turn in range(TIMES):
        for point in ("produce", "mark", "offsets", "commit"):
            team.publish()
            worker = team.start("node", point, 1 if point in ("offsets", "commit") else 2 + turn)
            eventually(lambda worker=worker: worker.poll() is not None, f"it dies at {point}", 40)
            assert worker.returncode == -signal.SIGKILL, team.logs()
    team.start("node")
    team.finish()
    answers = team.answers()
    assert Counter(n for _, n, _ in answers) == dict.fromkeys(range(team.published), 1)
    assert_in_order(answers)


@pytest.mark.parametrize("team", [False], indirect=True, ids=["at-least-once"])
@pytest.mark.timeout(120 + 60 * TIMES)
def test_without_transactions_a_repeat_is_the_same_artifact_and_none_is_lost(team: Team) -> None:
    for turn in range(TIMES):
        team.publish()
        worker = team.start("node", "written", 20 + turn)
        eventually(lambda worker=worker: worker.poll() is not None, "it dies when results are written", 40)
        assert worker.returncode == -signal.SIGKILL, team.logs()
    team.start("node")
    team.finish()
    answers = team.answers()
    ids = {(n, id) for _, n, id in answers}
    assert len(ids) == team.published  # one id for each input, however often it was answered
    assert {n for n, _ in ids} == set(range(team.published))


@pytest.mark.parametrize("team", [True], indirect=True, ids=["exactly-once"])
@pytest.mark.timeout(150)
def test_a_zombie_that_wakes_up_after_it_was_replaced_commits_nothing_more(team: Team) -> None:
    team.publish()
    zombie = team.start("node", "mark", 2, "SIGSTOP")
    process = psutil.Process(zombie.pid)
    states = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    eventually(lambda: process.status() in states, f"it stands still; {team.logs()}", 40)
    assert zombie.poll() is None, team.logs()
    team.start("node")
    team.finish()
    before = team.answers()
    zombie.send_signal(signal.SIGCONT)
    eventually(lambda: zombie.poll() is not None, f"it notices that it was replaced; {team.logs()}", 40)
    assert zombie.returncode != 0
    assert "fenced" in team.logs()
    answers = team.answers()
    assert answers == before
    assert Counter(n for _, n, _ in answers) == dict.fromkeys(range(team.published), 1)
    assert_in_order(answers)
