"""Finds connectors by name: whatever a package offers under the entry point `forebay.connectors`."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from forebay.connectors.contract import SourceConfig, SourceConnector
from forebay.errors import UnknownOptionError

GROUP = "forebay.connectors"


class ConnectorRegistry:
    """The connectors at hand. Loading one is put off until it is asked for."""

    def __init__(self) -> None:
        self._found: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
        self._registered: dict[str, type[SourceConnector]] = {}

    def register(self, name: str, connector: type[SourceConnector]) -> None:
        """Add one that is not in an installed package. Wins over an entry point of the same name."""
        self._registered[name] = connector

    def names(self) -> list[str]:
        return sorted({*self._found, *self._registered})

    def get(self, name: str) -> type[SourceConnector]:
        """The connector of this name; an unknown one is an error that lists those there are."""
        if name in self._registered:
            return self._registered[name]
        if name not in self._found:
            near = difflib.get_close_matches(name.lower(), self.names(), 1)
            remedy = f"did you mean '{near[0]}'?" if near else "there are: " + ", ".join(self.names())
            raise UnknownOptionError(f"there is no connector '{name}'", option="connector", remedy=remedy)
        connector: type[SourceConnector] = self._found[name].load()
        return connector

    def make(self, config: SourceConfig) -> SourceConnector:
        return self.get(config.connector)(config)


@lru_cache(maxsize=1)
def default_registry() -> ConnectorRegistry:
    """The registry of this process; Spark's workers and its planning process have their own."""
    return ConnectorRegistry()
