"""A real Spark standalone cluster on this machine: a master and workers of one core, started from the installed PySpark.

For tests and benchmarks. `python -m scripts.spark_cluster` starts one to try things on, until Ctrl-C.

A worker has a mount namespace of its own where the machine allows that: what is hidden from it is an empty folder there, as on
another machine. `Mounts` says which. Without namespaces `can_hide()` is False, and workers see all.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from forebay.devstack.ports import free_ports
from forebay.jvm.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_CLASS = SPARK_HOME / "bin" / "spark-class"
MEMORY = "1g"
START_S = 60.0  # a busy machine takes its time
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _await(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {START_S:.0f} s: {what()}")
        time.sleep(0.02)


@cache
def can_hide() -> bool:
    """Whether a process may have a mount namespace, with folders that others do not see."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


@dataclass(frozen=True)
class Mounts:
    """What a worker sees of this machine: folders that are empty for it, those below them that are not, and files that differ."""

    hidden: Sequence[Path] = ()
    shown: Sequence[Path] = ()
    hidden_within: Sequence[Path] = ()  # below those that are shown
    replaced: Mapping[Path, Path] = field(default_factory=dict)  # a file, and what stands in its place

    def commands(self, folder: Path) -> list[str]:
        """To be run in the worker's namespace, before it starts. `folder` is there for what must be kept at hand."""
        made = []
        for number, shown in enumerate(self.shown):
            made.append(f"mkdir -p {_quoted(folder / str(number))} {_quoted(shown)}")
            made.append(f"mount --bind {_quoted(shown)} {_quoted(folder / str(number))}")
        made += [f"mount -t tmpfs tmpfs {_quoted(hidden)}" for hidden in self.hidden]
        for number, shown in enumerate(self.shown):
            made.append(f"mkdir -p {_quoted(shown)}")
            made.append(f"mount --bind {_quoted(folder / str(number))} {_quoted(shown)}")
        made += [f"mount -t tmpfs tmpfs {_quoted(hidden)}" for hidden in self.hidden_within]
        made += [f"mount --bind {_quoted(other)} {_quoted(file)}" for file, other in self.replaced.items()]
        return made


class SparkCluster:
    """A master, and workers that come and go."""

    def __init__(
        self, folder: Path, *, mounts: Mounts | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: of the workers, over this process' own."""
        self._folder = folder
        self._mounts = mounts or Mounts()
        self._environment = dict(environment or {})
        self._workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> SparkCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, workers: int = 2) -> None:
        """The master, and so many workers; returns when all have registered."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port, page = free_ports(2)
        self.url, self._page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}"
        self._master = self._launch(
            "master", ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", str(page)], Mounts(),
        )  # fmt: skip
        _await(lambda: self._state() is not None, lambda: f"the master answers: {self._log('master')}")
        for _ in range(workers):
            self.add_worker(wait=False)
        self.await_workers(workers)

    def add_worker(
        self,
        *,
        mounts: Mounts | None = None,
        environment: Mapping[str, str] | None = None,
        memory: str = MEMORY,
        wait: bool = True,
    ) -> int:
        """A worker of one core; its number. One of more memory is the only one for executors that need more."""
        number = len(self._workers)
        name = f"worker-{number}"
        [page] = free_ports(1)
        host = f"127.0.0.{number + 2}"  # each its own: Spark runs a task a second time on another host only
        self._workers.append(
            self._launch(
                name, ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", memory,
                "--webui-port", str(page), "--work-dir", str(self._folder / name), self.url],
                self._mounts if mounts is None else mounts, {"SPARK_LOCAL_IP": host, **(environment or {})},
            )
        )  # fmt: skip
        if wait:
            self.await_workers(len(self.running))
        return number

    def await_workers(self, count: int) -> None:
        _await(lambda: self.alive() == count, lambda: f"{count} workers have registered")

    def alive(self) -> int:
        """Workers that the master counts on."""
        return (self._state() or "").count("<td>ALIVE</td>")

    @property
    def running(self) -> list[int]:
        """The numbers of the workers that live."""
        return [number for number, worker in enumerate(self._workers) if worker.poll() is None]

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker, its executors and their Python processes, as when a machine loses its power."""
        self._kill(number)
        self.await_workers(len(self.running))

    def _kill(self, number: int) -> None:
        for process in self._tree(number):
            with suppress(psutil.Error):
                process.kill()
        self._workers[number].wait()

    def kill_executor(self, number: int) -> None:
        """SIGKILL to the executors of a worker: the worker starts others."""
        for process in self.executors(number):
            process.kill()

    def executors(self, number: int) -> list[psutil.Process]:
        """The JVMs of a worker that run tasks now."""
        return [each for each in self._tree(number) if "CoarseGrainedExecutorBackend" in _command(each)]

    def pythons(self, number: int) -> list[psutil.Process]:
        """The Python processes of a worker."""
        return [
            each
            for each in self._tree(number)
            if "worker_daemon" in _command(each) or "pyspark.daemon" in _command(each)
        ]

    def seen(self, number: int, folder: Path) -> list[str]:
        """What a worker sees in a folder."""
        return sorted(
            entry.name for entry in Path(f"/proc/{self._workers[number].pid}/root{folder}").iterdir()
        )

    def freeze(self, number: int) -> None:
        """The Python processes of a worker stand still; `thaw` lets them go on."""
        for process in self.pythons(number):
            process.suspend()

    def thaw(self, number: int) -> None:
        for process in self.pythons(number):
            process.resume()

    def stop(self) -> None:
        for number in self.running:
            self._kill(number)
        if self._master is not None and self._master.poll() is None:
            os.killpg(self._master.pid, signal.SIGKILL)
            self._master.wait()

    def _tree(self, number: int) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._workers[number].pid)
            return [*root.children(recursive=True), root]
        except psutil.NoSuchProcess:
            return []

    def _launch(
        self,
        name: str,
        command: list[str],
        mounts: Mounts,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        line = [str(SPARK_CLASS), *command]
        commands = mounts.commands(self._folder / f"{name}-mounts") if can_hide() else []
        if commands:
            line = ["unshare", "-m", "sh", "-c", " && ".join([*commands, f"exec {shlex.join(line)}"])]
        given = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / f"{name}-local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL,
            "JAVA_HOME": str(Path(find_java().path).resolve().parent.parent),
            **self._environment,
            **(environment or {}),
        }
        given.pop("PYTHONPATH", None)
        given.pop("SPARK_SUBMIT_OPTS", None)
        with self._log_file(name).open("ab") as log:
            return subprocess.Popen(
                line,
                env=given,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _log(self, name: str) -> str:
        return self._log_file(name).read_text()[-2000:]

    def _state(self) -> str | None:
        """The master's page, which lists its workers."""
        try:
            with urllib.request.urlopen(self._page, timeout=5) as answer:  # noqa: S310, our own address
                return str(answer.read().decode())
        except OSError:
            return None


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def bare_python(folder: Path) -> Path:
    """A Python of this version in a folder for the PATH, in which nothing is installed."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(Path(sys.base_prefix) / "bin" / name)
    return folder / name


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkCluster(Path(folder)) as running,
        suppress(KeyboardInterrupt),
    ):
        print(running.url, flush=True)
        signal.pause()
