"""What `forebay dev up` left running: a small JSON file, and the question whether it is still true."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
import psutil

from forebay.errors import StackError
from forebay.files import write_whole

# Linux derives a process's start from the time of boot, which moves a little when the clock is set.
_CLOCK_SECONDS = 1.0


def state_root() -> Path:
    """`FOREBAY_STATE`, or the platform's state folder for Forebay. Data and logs live there too."""
    chosen = os.environ.get("FOREBAY_STATE")
    return Path(chosen).absolute() if chosen else platformdirs.user_state_path("forebay")


@dataclass(frozen=True)
class ServiceState:
    """One detached server, described well enough never to be mistaken for another process."""

    pid: int
    create_time: float
    marker: str
    port: int
    log: str
    data: str
    security: str = ""  # what its broker asks for

    @property
    def guarded(self) -> Path | None:
        """The folder with certificates and clients' settings; None where everybody is let in."""
        return Path(self.data) / "security" if self.security else None

    def process(self) -> psutil.Process | None:
        """The running process, None if it has ended, also when its pid now belongs to another."""
        try:
            found = psutil.Process(self.pid)
            if found.status() == psutil.STATUS_ZOMBIE:
                return None
            same_start = abs(found.create_time() - self.create_time) < _CLOCK_SECONDS
            # The marker covers a clock that was set by more than that.
            return found if same_start or self.marker in found.cmdline() else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


def create_time(pid: int) -> float:
    """When a process started; 0 if it is gone already."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return 0.0


def load() -> dict[str, ServiceState]:
    """The services of the last `up` by name, running or not; empty if there was none."""
    path = _path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {name: _checked(entry) for name, entry in json.loads(text)["services"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{path} is damaged: {error}", remedy="end the servers by hand, then remove the file"
        ) from error


def save(services: dict[str, ServiceState]) -> None:
    """Replace the file in one step; with no services it goes."""
    path = _path()
    if not services:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"services": {name: asdict(service) for name, service in services.items()}}
    write_whole(path, (json.dumps(body, indent=2) + "\n").encode(), durable=False)


def _path() -> Path:
    return state_root() / "stack.json"


def _checked(entry: dict[str, object]) -> ServiceState:
    service = ServiceState(**entry)  # type: ignore[arg-type]  # checked on the next line
    for name, kind in (("pid", int), ("create_time", float), ("marker", str), ("port", int), ("log", str)):
        if not isinstance(getattr(service, name), kind):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    return service
