"""The JVM that Spark runs in: what it prints is passed on line by line, less what nobody needs to read."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from forebay import threads

log = logging.getLogger("forebay.spark")

# Spark asks Java for this module by itself, and Java warns of it at every start, without a way to turn that off.
_NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"
_LAST_WORDS_S = 2.0


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM with these settings, if this process has none yet. The SparkContext made next runs in it."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    reading, writing = os.pipe()
    passing = threads.start(
        "forebay-spark-output", lambda: _pass_on(reading), lambda error: os.close(reading)
    )
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        gateway = launch_gateway(conf, {"stderr": writing})
    except BaseException:
        os.close(writing)
        passing.join(_LAST_WORDS_S)  # why it did not start
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _pass_on(handle: int) -> None:
    """To `sys.stderr` as it is at that moment: a line that changes in the terminal stays whole there.

    The pipe is read to its end whatever becomes of the lines, or the JVM would stop at a full one.
    """
    with os.fdopen(handle, "rb") as lines:
        for line in lines:
            if line.rstrip() != _NOISE:
                with suppress(Exception):
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()
