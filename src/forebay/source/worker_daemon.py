"""Spark's Python daemon with what a source needs loaded already.

Spark forks the workers that read from a daemon. What the daemon has imported, none of them imports again, which
takes a second of a core, and they share its memory.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark import daemon

for name in (
    "forebay.source.datasource",
    "forebay.source.serve",
    "forebay.source.partials",
    "forebay.kafka.connector",
    "forebay.kafka.native_reader",
    "forebay.formats.json_format",
    "forebay.formats.avro_format",
    "forebay.views.table",
    "pandas",  # which PySpark's worker imports as soon as it hands over Arrow
):
    import_module(name)

if __name__ == "__main__":
    import_module(sys.argv[1])
    # A worker collects garbage after each task, a core's 60 ms over all that was imported here, none of which is any.
    gc.collect()
    gc.freeze()
    daemon.manager()
