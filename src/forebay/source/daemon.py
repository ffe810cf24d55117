"""Spark's Python daemon with what a source needs loaded already.

Spark forks the workers that read from a daemon. What the daemon has imported, none of them imports again, which
takes a second of a core, and they share its memory.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark import daemon

for name in ("forebay.source.datasource", "forebay.kafka.connector", "forebay.kafka.native_reader"):
    import_module(name)

if __name__ == "__main__":
    import_module(sys.argv[1])
    daemon.manager()
