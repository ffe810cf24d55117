"""Where a view keeps what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ViewPaths:
    """Where a view keeps what. Everything of a view is below one directory."""

    root: Path

    @property
    def table(self) -> Path:
        return self.root / "table"

    @property
    def groups(self) -> Path:
        """Of a view that groups: what its table is made of."""
        return self.root / "groups"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def start(self) -> Path:
        """Where the first batch starts. Spark does not keep it: a first batch that is repeated asks again."""
        return self.root / "start.json"

    @property
    def drain(self) -> Path:
        return self.root / "drain"

    def accounts_of(self, source: str) -> Path:
        """What tasks said of what they read of a source and is not in the catalog yet."""
        return self.root / "accounts" / source

    def health_of(self, source: str) -> Path:
        """How partitions of a source fared, where its error policy has limits."""
        return self.accounts_of(source) / "health"

    @property
    def lock(self) -> Path:
        return self.root / "lock"


def paths_of(home: Path, view: str) -> ViewPaths:
    return ViewPaths(home / "views" / view)
