"""The native reader, where its wheel is installed; everything works without it, slower.

`FOREBAY_NATIVE=0` leaves it out although it is there.
"""

from __future__ import annotations

import ctypes.util
import importlib
import logging
import os
import sys
from functools import cache
from pathlib import Path
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


@cache
def librdkafka() -> str | None:
    """The library that confluent-kafka has loaded, so that there is one in the process."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    beside = [package.parent / "confluent_kafka.libs", package / ".dylibs", package]
    found = [
        path
        for folder in beside
        for path in sorted(folder.glob("librdkafka*"))
        if ".so" in path.name or path.suffix == ".dylib"
    ]
    return str(found[0]) if found else ctypes.util.find_library("rdkafka")


def allocator() -> str | None:
    """A memory allocator to preload into Spark's Python workers, if there is one.

    librdkafka allocates records in one thread and frees them in another, which glibc's allocator does
    badly: a worker that reads needs half as much CPU time again without this.
    """
    module = native()
    found: str | None = module.allocator() if module is not None and sys.platform == "linux" else None
    return found
