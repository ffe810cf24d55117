"""The native reader, where its wheel is installed; everything works without it, slower.

`FOREBAY_NATIVE=0` leaves it out although it is there.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from forebay.connectors.contract import Stretch

if TYPE_CHECKING:
    import forebay_native

log = logging.getLogger("forebay.native")


@cache
def native() -> ModuleType | None:
    """The module, or None; its absence is logged once a process.

    Whoever uses it imports what it needs from `forebay_native`, after asking here: that has types.
    """
    if os.environ.get("FOREBAY_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("forebay_native")
    except ImportError:
        log.warning("the native reader is not installed: decoding in Python, several times slower")
        return None


def stretches(found: Iterable[forebay_native.Stretch]) -> list[Stretch]:
    """Native stretches as a connector's."""
    return [Stretch(each.topic, each.partition, each.start, each.end, each.bad) for each in found]
