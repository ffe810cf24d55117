"""Peers that stay up for a whole claim, seen from the runner: started once, asked, ended."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.environment import PeerError, last_words
from benchmarks.peers.session import Job, Opening, Timing
from benchmarks.runner import ROOT, peer_environment, without_paths

OPEN_TIMEOUT_S = 180.0
END_TIMEOUT_S = 30.0


class PeerSession:
    """One peer's process. It is started when first asked, and again after it died or had to be killed."""

    def __init__(self, peer: Peer, prepared: Prepared, opening: Opening) -> None:
        self.peer = peer
        self.version = "?"
        self._prepared = prepared
        self._opening = opening
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._work = ""
        self._warm: set[tuple[str, ...]] = set()
        self.warm = False  # for claims with cases of another kind, which warm up by themselves

    def ask(self, job: Job, timeout_s: float) -> Timing:
        """Measure a case. What was asked before in this process is not warmed up again."""
        kind = (job.reading.format, job.reading.query, job.reading.size)
        if kind in self._warm and self._process:
            job = replace(job, warmup=None)
        timing = Timing(**self.tell(asdict(job), timeout_s))
        self._warm.add(kind)
        return timing

    def tell(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """One line there, one line back."""
        return self._exchange(self._process or self._start(), question, timeout_s)

    def _start(self) -> subprocess.Popen[str]:
        self._work = tempfile.mkdtemp(prefix="forebay-bench-")
        self._lines = lines = queue.SimpleQueue()
        self._warm.clear()
        with (Path(self._work) / "stderr.txt").open("w") as said:
            process = subprocess.Popen(
                [self._prepared.python, "-m", self.peer.module], cwd=ROOT, env=peer_environment(), text=True,
                start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            )  # fmt: skip
        self._process = process

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=listen, daemon=True).start()
        opening = replace(self._opening, work=self._work, own=self._prepared.own)
        self.version = self._exchange(process, asdict(opening), OPEN_TIMEOUT_S)["version"]
        return process

    def _exchange(
        self, process: subprocess.Popen[str], question: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._kill()
            raise PeerTimeout(f"no answer after {timeout_s:.0f} s") from None
        except BrokenPipeError:
            line = ""
        if not line:
            words = self._said()
            self._kill()
            raise PeerError(without_paths(f"ended: {words}"))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(without_paths(answer["error"]))
        return answer

    def _said(self) -> str:
        return last_words((Path(self._work) / "stderr.txt").read_text(errors="replace"))

    def close(self) -> None:
        """Ask it to end by closing its input; a peer that does not is killed."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.stdin.close()
            process.wait(END_TIMEOUT_S)
        self._kill()

    def _kill(self) -> None:
        """The peer and all that it started: the group outlives a leader that ended by itself."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        shutil.rmtree(self._work, ignore_errors=True)


class PeerTimeout(PeerError):
    """It took too long: asking again in the next round would only take as long again."""
