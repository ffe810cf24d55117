"""Runs peers, each in a process of its own, in turn."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.peers.contract import Outcome, Peer, Prepared, Task
from benchmarks.peers.environment import PeerError, last_words

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "benchmarks" / ".work"
RUN_TIMEOUT_S = 1800.0

Measured = Outcome | str
"""An outcome, or why there is none."""


@dataclass(frozen=True)
class Round:
    """What each peer measured in one round, by peer name."""

    measured: Mapping[str, Measured]


def prepare(peer: Peer) -> Prepared | str:
    """Install what the peer needs, or say why that failed: then the others are measured without it."""
    WORK.mkdir(exist_ok=True)
    try:
        return peer.prepare(WORK)
    except (PeerError, OSError, subprocess.SubprocessError) as error:
        return without_paths(f"{error}")


def run(peer: Peer, prepared: Prepared, task: Task, timeout_s: float = RUN_TIMEOUT_S) -> Outcome:
    """One measurement in a fresh process. `task.work` is set here."""
    work = tempfile.mkdtemp(prefix="forebay-bench-")
    full = replace(task, work=work, own={**prepared.own, **task.own})
    process = subprocess.Popen(
        [prepared.python, "-m", peer.module], cwd=ROOT, env=peer_environment(), text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        answer, said = process.communicate(json.dumps(asdict(full)), timeout=timeout_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise PeerError(f"no answer after {timeout_s:.0f} s") from None
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if process.returncode:
        raise PeerError(without_paths(last_words(said)))
    return Outcome.from_json(answer)


def peer_environment() -> dict[str, str]:
    """No settings of the caller's Spark may reach a peer; it finds this package by the working folder."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}


def interleave(
    peers: Sequence[Peer],
    task: Task,
    records: int | None,
    rounds: int,
    on_result: Callable[[int, str, Measured], None],
) -> list[Round]:
    """Each peer once a round; the order turns, so that none always has the machine after the other."""
    ready = {peer.name: prepare(peer) for peer in peers}
    done = []
    for number in range(rounds):
        measured: dict[str, Measured] = {}
        for peer in peers if number % 2 == 0 else list(reversed(peers)):
            measured[peer.name] = _attempt(peer, ready[peer.name], task, records)
            on_result(number, peer.name, measured[peer.name])
        done.append(Round({peer.name: measured[peer.name] for peer in peers}))
    return done


def _attempt(peer: Peer, prepared: Prepared | str, task: Task, records: int | None) -> Measured:
    if isinstance(prepared, str):
        return prepared
    try:
        outcome = run(peer, prepared, task)
    except PeerError as error:
        return str(error)
    if records is not None and outcome.records != records:
        return f"read {outcome.records:,} of {records:,} records"
    return outcome


def without_paths(text: str) -> str:
    """Reports are published: the folders of this machine are nobody's business."""
    return text.replace(str(ROOT), ".").replace(str(Path.home()), "~")
