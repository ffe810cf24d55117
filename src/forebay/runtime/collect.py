"""The rows of a query, in a way that Ctrl-C can break off."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay import threads
from forebay.runtime.spark_failures import ours

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FILE_GONE = "java.io.FileNotFoundException"  # in what Spark says


def collect(query: Callable[[], DataFrame]) -> pa.Table:
    """Plan a query, run it and wait for its rows.

    Where files are gone that were there when it was planned (they were merged long before anybody asked for the rows), it is
    planned anew, once. A thread of its own talks to Spark: Ctrl-C in the middle of a call would leave an answer behind that the next call
    takes for its own. It cancels this query alone; those of views go on.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    group = f"forebay-select-{uuid.uuid4().hex}"
    tables: list[pa.Table] = []
    failures: list[Exception] = []
    # Not Thread.join(): one that Ctrl-C interrupts takes the thread for ended (Python 3.11).
    done = threading.Event()

    def work() -> None:
        try:
            try:
                tables.append(_rows(query(), group))
            except (PySparkException, Py4JError) as error:
                if FILE_GONE not in str(error):
                    raise
                tables.append(_rows(query(), group))
        except Exception as error:
            failures.append(error)
        finally:
            done.set()

    threads.start("forebay-select", work, failures.append)
    try:
        done.wait()
    except KeyboardInterrupt:
        # Its job may be still to come: Ctrl-C while the query is planned must not leave it running for ever.
        if (context := SparkContext._active_spark_context) is not None:
            context._jsc.sc().cancelJobGroupAndFutureJobs(group)
        raise
    with ours():
        if failures:
            raise failures[0]
    return tables[0]


def _rows(frame: DataFrame, group: str) -> pa.Table:
    frame.sparkSession.sparkContext.setJobGroup(group, "SELECT", interruptOnCancel=True)
    return frame.toArrow()
