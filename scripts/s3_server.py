"""A real S3 server on loopback, for tests and benchmarks: versitygw, over a folder.

It is built once, where Go is there, and kept in the user's cache: `python -m scripts.s3_server` does that, in two to three minutes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from forebay.cache import cache_root

PROGRAM = "versitygw"
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUILD_S = 900.0
KEY, SECRET = "forebay-tests", "a-secret-that-no-output-has"
START_S = 30.0


def program() -> str:
    """The server's path, built first where it has to be. FileNotFoundError says why there is none."""
    folder = cache_root() / "versitygw"
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(folder))
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError(f"{PROGRAM} is not here, and no Go to build it: go install {MODULE}")
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / "lock", timeout=BUILD_S):
        if (built := shutil.which(PROGRAM, path=str(folder))) is not None:
            return built
        env = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-trimpath"}
        done = subprocess.run(
            [go, "install", MODULE], env=env, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["go failed"])[-1]
        raise FileNotFoundError(f"{PROGRAM} cannot be built here: {said}")
    return str(folder / PROGRAM)


@dataclass
class S3Server:
    """`bucket` is there; its objects are files below `folder`."""

    folder: Path
    port: int
    bucket: str = "lake"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def start(self, secret: str = SECRET) -> None:
        """Ready when this returns. With another secret it lets nobody in. FileNotFoundError without the program."""
        found = program()
        (self.folder / self.bucket).mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [found, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.folder)],
            env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": secret},
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_S
        while not self._listens():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError("the S3 server does not listen")
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as made:
            return made.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """At once, as a server goes whose machine is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = S3Server(folder, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    print(program())
