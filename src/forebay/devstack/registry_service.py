"""Apicurio Registry in one JVM, spoken to through its Confluent-compatible API."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path

from forebay.devstack.artifacts import REGISTRY
from forebay.devstack.ports import HOST
from forebay.devstack.service import Service
from forebay.jvm.java import Java

API = "/apis/ccompat/v7"


class RegistryServer(Service):
    """One schema registry, its schemas in an H2 file under its directory."""

    name = "registry"
    artifacts = REGISTRY
    address_in_use = "seems to be in use by another process"

    @property
    def url(self) -> str:
        """Where clients connect; known after the first start, also while the registry is down."""
        return url(self.known_port)

    def _prepare(self, port: int, home: Path, java: Java) -> tuple[list[str], Callable[[], bool]]:
        arguments = [
            "-Xmx512m",
            # It answers a handful of requests: the small collector and compiler halve the time to start.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={port}",
            "-Dquarkus.http.access-log.enabled=false",
            f"-Dapicurio.datasource.url=jdbc:h2:file:{self.directory / 'schemas'}",
            # Confluent's registry lets subjects be deleted; Apicurio refuses unless it is configured to.
            "-Dapicurio.rest.deletion.group.enabled=true",
            "-Dapicurio.rest.deletion.artifact.enabled=true",
            "-Dapicurio.rest.deletion.artifact-version.enabled=true",
            "-jar",
            str(next(home.glob("*-runner.jar"))),
        ]
        return arguments, lambda: _serves_subjects(port)


def url(port: int) -> str:
    """The address for a registry client."""
    return f"http://{HOST}:{port}{API}"


def _serves_subjects(port: int) -> bool:
    # http.client, because urllib would send this to the proxy of the environment.
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", f"{API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
