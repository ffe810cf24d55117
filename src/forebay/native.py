"""The native reader, where its wheel is installed; everything works without it, slower.

`FOREBAY_NATIVE=0` leaves it out although it is there.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache
from types import ModuleType

log = logging.getLogger("forebay.native")


@cache
def native() -> ModuleType | None:
    """The module, or None. The first who asks in vain is told so, once a process."""
    if os.environ.get("FOREBAY_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("forebay_native")
    except ImportError:
        log.warning("the native reader is not installed: decoding in Python, several times slower")
        return None
