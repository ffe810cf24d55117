"""Where Forebay keeps what it can get again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """`FOREBAY_CACHE`, or the platform's cache folder for Forebay."""
    chosen = os.environ.get("FOREBAY_CACHE")
    return Path(chosen).absolute() if chosen else platformdirs.user_cache_path("forebay")
