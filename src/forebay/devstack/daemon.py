"""The stack of `forebay dev up`: servers that outlive the command, one stack per user."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from forebay.devstack import state
from forebay.devstack.artifact_cache import locked
from forebay.devstack.artifacts import KAFKA, REGISTRY, load_set
from forebay.devstack.broker import Broker
from forebay.devstack.download import resolve
from forebay.devstack.download_progress import say
from forebay.devstack.guard import ADMIN_FILE, CLIENT_FILE, ENVIRONMENT_FILE, Guard, Security
from forebay.devstack.ports import HOST, is_free
from forebay.devstack.process import STOP_SECONDS
from forebay.devstack.registry_service import RegistryServer, url
from forebay.devstack.service import Service
from forebay.devstack.stack import each, start_all
from forebay.devstack.state import ServiceState
from forebay.errors import StackStartError

# What everybody types from memory; taken when free and nothing else is asked for.
BROKER_PORT = 9092
REGISTRY_PORT = 8081


@dataclass(frozen=True)
class Status:
    """The services that run now."""

    broker: ServiceState | None
    registry: ServiceState | None

    @property
    def bootstrap_servers(self) -> str | None:
        return f"{HOST}:{self.broker.port}" if self.broker else None

    @property
    def schema_registry_url(self) -> str | None:
        return url(self.registry.port) if self.registry else None

    @property
    def security(self) -> str | None:
        """What the broker asks for; None where everybody is let in."""
        return (self.broker.security or None) if self.broker else None

    @property
    def client_config(self) -> str | None:
        """The file with the settings of a client that the broker lets in; None where it lets everybody in."""
        return self._guarded(CLIENT_FILE)

    @property
    def client_environment(self) -> str | None:
        """The same, for a shell."""
        return self._guarded(ENVIRONMENT_FILE)

    @property
    def admin_config(self) -> str | None:
        """The same of a user who may do everything."""
        return self._guarded(ADMIN_FILE)

    def _guarded(self, name: str) -> str | None:
        folder = self.broker.guarded if self.broker else None
        return str(folder / name) if folder else None


def status() -> Status:
    """What runs, as the process table says and not only as the file says."""
    alive = {name: service for name, service in state.load().items() if service.process()}
    return Status(alive.get(Broker.name), alive.get(RegistryServer.name))


def fetch(registry: bool) -> None:
    """Download what `up` will need, with its own progress display."""
    for name in (KAFKA, REGISTRY) if registry else (KAFKA,):
        resolve(load_set(name))


def up(
    *,
    registry: bool,
    port: int | None = None,
    registry_port: int | None = None,
    security: Security | None = None,
) -> tuple[Status, list[str]]:
    """Start what does not run yet; return what runs now and the names of what was started."""
    with _alone():
        now = status()
        if now.broker is not None and security is not None and now.security != security:
            raise StackStartError(
                f"the broker runs already, with security {now.security or 'off'}",
                remedy=f"forebay dev down, then forebay dev up --security {security}",
            )
        known = {
            service.name: entry
            for service, entry in ((Broker, now.broker), (RegistryServer, now.registry))
            if entry
        }
        saving = threading.Lock()

        def remember(service: Service, port: int) -> None:
            # At once, not when it is ready: whatever happens next, `down` finds it.
            with saving:
                asked = str(security or "") if service.name == Broker.name else ""
                known[service.name] = _describe(service, port, asked)
                state.save(known)

        root = state.state_root()
        services: list[Service] = []
        if now.broker is None:
            chosen = _choose(port, BROKER_PORT, Broker.name)
            folder = root / Broker.name
            guard = None if security is None else Guard.of(security, folder / "security")
            services.append(Broker(folder, port=chosen, guard=guard, detached=True, on_spawn=remember))
        if registry and now.registry is None:
            chosen = _choose(registry_port, REGISTRY_PORT, RegistryServer.name)
            services.append(
                RegistryServer(root / RegistryServer.name, port=chosen, detached=True, on_spawn=remember)
            )
        try:
            start_all(services)
        except BaseException:
            each(services, "stop")
            state.save({name: service for name, service in known.items() if service.process()})
            raise
        return status(), [service.name for service in services]


def down(*, wipe: bool = False) -> list[str]:
    """Stop what `up` started, nothing else; return the names of what was stopped."""
    with _alone():
        entries = state.load().items()
        running = {name: (entry, process) for name, entry in entries if (process := entry.process())}
        stopped = list(running)
        for _, process in running.values():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for entry, _ in running.values():
            _await_end(entry)
        state.save({})
        if wipe:
            for name in (Broker.name, RegistryServer.name):
                shutil.rmtree(state.state_root() / name, ignore_errors=True)
        return stopped


def log_path(name: str) -> Path:
    """The log of a service; it stays after `down`, for a look at what happened."""
    return state.state_root() / name / f"{name}.log"


@contextmanager
def _alone() -> Iterator[None]:
    with locked(state.state_root() / ".lock", lambda: say("Waiting for another 'forebay dev' command")):
        yield


def _choose(asked: int | None, usual: int, name: str) -> int | None:
    if asked is not None:
        return asked
    if is_free(usual):
        return usual
    say(f"Port {usual} is in use: the {name} gets a free one")
    return None


def _describe(service: Service, port: int, security: str) -> ServiceState:
    assert service.process is not None
    return ServiceState(
        pid=service.process.pid,
        create_time=state.create_time(service.process.pid),
        marker=service.process.marker,
        port=port,
        log=str(service.log),
        data=str(service.directory),
        security=security,
    )


def _await_end(entry: ServiceState) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        if entry.process() is None:
            return
        time.sleep(0.03)
    process = entry.process()
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        psutil.wait_procs([process], timeout=STOP_SECONDS)
