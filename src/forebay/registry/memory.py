"""What a registry has answered, on this machine's disk: for processes that start while it is away.

A registry that answers is always believed instead; so one that was emptied and gives its ids anew does no
harm. Nothing here may fail: without a folder to write to there is no memory, and that is all.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from forebay.cache import cache_root
from forebay.files import write_whole
from forebay.registry.settings import RegistrySettings


class Memory:
    """One registry's answers, as seen by one user of it."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._folder = cache_root() / "schemas" / _short(f"{settings.url} {settings.username}")

    def keep(self, key: str, answer: dict[str, Any]) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path(key), json.dumps(answer).encode(), durable=False)
        except OSError:
            return

    def recall(self, key: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def _path(self, key: str) -> Path:
        return self._folder / f"{_short(key)}.json"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
