"""Spark's Python daemon with what a source needs loaded already.

Spark forks the workers that read from a daemon. What the daemon has imported, none of them imports again, which
takes a second of a core, and they share its memory.

On a cluster it first looks whether this machine has what the driver has. What it says then, Spark hands to the driver.
"""

from __future__ import annotations

import gc
import socket
import sys
from importlib import import_module

from pyspark import daemon

from forebay.errors import ForebayError, WorkerSetupError
from forebay.source.versions import check_environment

NEEDED = (
    "forebay.source.datasource",
    "forebay.source.serve",
    "forebay.source.partials",
    "forebay.kafka.connector",
    "forebay.kafka.native_reader",
    "forebay.formats.json_format",
    "forebay.formats.avro_format",
    "forebay.views.table",
    "pandas",  # which PySpark's worker imports as soon as it hands over Arrow
)


def load() -> None:
    """Import all of it, if this is the environment that the driver has."""
    try:
        check_environment()
        for name in NEEDED:
            import_module(name)
    except ForebayError as error:
        sys.exit(str(error))
    except ImportError as error:
        sys.exit(
            str(
                WorkerSetupError(
                    f"Python on the worker {socket.gethostname()} lacks a part of Forebay: {error}"
                )
            )
        )


load()

if __name__ == "__main__":
    import_module(sys.argv[1])
    # A worker collects garbage after each task, a core's 60 ms over all that was imported here, none of which is any.
    gc.collect()
    gc.freeze()
    daemon.manager()
