"""One client a process for each registry.

The client's own imports take a quarter of a second, which a process that needs no registry does not pay:
Spark starts half a dozen Python processes, one after another, before a query's first row.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from forebay.registry.schemas import Version
from forebay.registry.settings import Origin, RegistrySettings

if TYPE_CHECKING:
    from forebay.registry.client import RegistryClient

_registries: dict[tuple[int, RegistrySettings], RegistryClient] = {}
_registries_lock = threading.Lock()


def registry(settings: RegistrySettings) -> RegistryClient:
    """The client of this process for these settings. One does not survive a fork, and Spark forks its workers."""
    from forebay.registry.client import RegistryClient

    with _registries_lock:
        key = os.getpid(), settings
        if key not in _registries:
            _registries[key] = RegistryClient(settings)
        return _registries[key]


def newest(origin: Origin, kind: str) -> list[Version]:
    """The newest schemas of a source's subjects that are of a type, those that differ; none if there are none."""
    found = (registry(origin.settings).latest(subject) for subject in origin.subjects)
    of_kind = [version for version in found if version is not None and version.schema.type == kind]
    return list({(v.schema.text, v.schema.references): v for v in reversed(of_kind)}.values())[::-1]
