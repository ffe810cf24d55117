"""The pinned files of the stack, read from `artifacts.toml`."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KAFKA = "kafka"
REGISTRY = "registry"


@dataclass(frozen=True)
class MavenFile:
    """One file in a Maven repository, and what must be in it."""

    group: str
    name: str
    version: str
    size: int
    sha256: str
    type: str = "jar"
    classifier: str = ""

    @property
    def file_name(self) -> str:
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{suffix}.{self.type}"


@dataclass(frozen=True)
class ArtifactSet:
    """Files that are downloaded, verified and cached together, or not at all."""

    name: str
    title: str
    version: str
    artifacts: tuple[MavenFile, ...]

    @property
    def size(self) -> int:
        return sum(artifact.size for artifact in self.artifacts)

    @property
    def directory_name(self) -> str:
        """Carries a digest of the pins, so that two Forebay versions never share a folder by mistake."""
        pins = "\n".join(f"{artifact.file_name} {artifact.sha256}" for artifact in self.artifacts)
        return f"{self.name}-{self.version}-{hashlib.sha256(pins.encode()).hexdigest()[:8]}"


@cache
def load_set(name: str) -> ArtifactSet:
    """The pinned set called `name`: KAFKA or REGISTRY."""
    table = tomllib.loads(Path(__file__).with_name("artifacts.toml").read_text(encoding="utf-8"))[name]
    artifacts = tuple(MavenFile(**entry) for entry in table["artifacts"])
    return ArtifactSet(name, table["title"], table["version"], artifacts)
