"""SIGKILL in the middle of a replay, again and again: each letter is sent once.

FOREBAY_CHAOS_KILLS sets how often (10), FOREBAY_CHAOS_SEED which random moments.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import letters as make
import pytest
from sessions import connect
from support import Cluster
from waiting import eventually

from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter

KILLS = int(os.environ.get("FOREBAY_CHAOS_KILLS", "2"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))
LETTERS = 2_000 + 5_000 * KILLS  # some transactions for each kill, and some for the end
LATER_S = 0.4  # every other kill: within this time after the first transaction of a run
WITHIN_S = 0.02  # the others: within about the time that a transaction takes, after it was announced


def replay(home: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "forebay", "dlq", "replay", "--all", "--home", str(home)],
            stdout=words,
            stderr=words,
            stdin=subprocess.DEVNULL,
        )


def counted(home: Path, question: str) -> int:
    with sqlite3.connect(f"file:{home / 'catalog.db'}?mode=ro", uri=True, timeout=30) as db:
        return int(db.execute(question).fetchone()[0])


REPLAYED = "SELECT count(*) FROM dead_letter_outcomes WHERE state = 'replayed'"
INTENTS = "SELECT count(*) FROM dead_letter_intents"


@pytest.mark.timeout(240 + 30 * KILLS)
def test_each_letter_is_sent_once_however_often_the_replay_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    home, case = tmp_path / "home", make.case(cluster)
    with connect(home) as session:
        session.execute(case.statement())
    producer = cluster.producer(linger_ms=20)
    for number in range(LETTERS):
        value = b"{%d" % number
        letter = Letter(
            case.source, case.topic, number % 2, number // 2, 1_000, b"k%d" % (number % 50), value, (("n", b"%d" % number),),
            "MalformedPayload", "not JSON", 2_000, size=len(value),
        )  # fmt: skip
        key, data, headers = letter.to_kafka()
        producer.produce(case.dlq, data, key=key, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0

    in_the_middle = 0
    for kill in range(KILLS):
        before, log = counted(home, REPLAYED), tmp_path / f"run-{kill}.log"
        process = replay(home, log)
        try:

            def reached(
                kill: int = kill, before: int = before, process: subprocess.Popen[bytes] = process
            ) -> bool:
                new = counted(home, REPLAYED) > before
                return process.poll() is not None or (new and (kill % 2 == 0 or counted(home, INTENTS) > 0))

            eventually(reached, f"the replay runs; {log}", timeout=60)
            assert process.poll() is None, f"it ended by itself:\n{log.read_text()}"
            time.sleep(
                moments.uniform(0, WITHIN_S if kill % 2 else LATER_S)
            )  # the moment is what is random here
        finally:
            process.kill()
            process.wait(30)
        in_the_middle += counted(home, INTENTS)
        print(f"killed at {counted(home, REPLAYED)} of {LETTERS}")
    last = replay(home, tmp_path / "last.log")
    assert last.wait(200) == 0, (tmp_path / "last.log").read_text()

    print(f"{KILLS} kills, {in_the_middle} transactions broken off")
    assert in_the_middle or KILLS < 5, "no kill fell into a transaction: this has shown nothing"
    sent = case.cluster.records(case.topic)
    times = Counter(dict(message.headers())["forebay.replayed.from"].decode() for message in sent)
    expected = {Identity(case.topic, number % 2, number // 2).place: number for number in range(LETTERS)}
    assert set(times) == set(expected)
    assert [id for id, count in times.items() if count != 1] == []
    for message in sent:
        headers = dict(message.headers())
        number = expected[headers["forebay.replayed.from"].decode()]
        assert (message.key(), message.value(), headers["n"]) == (
            b"k%d" % (number % 50),
            b"{%d" % number,
            b"%d" % number,
        )
    assert counted(home, REPLAYED) == LETTERS
    assert counted(home, INTENTS) == 0
