"""When a session's Spark is started: at its first use, or ahead of it, while the session does something else.

A JVM takes seconds to start, and hardly any of this process. Views that are started meanwhile cost nothing then.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStart:
    """Of one session, whose lock is held by whoever calls this."""

    def __init__(
        self, master: str, conf: Mapping[str, str], warehouse: Path, archive: str | Path | None
    ) -> None:
        self.owned = False  # it was started here, and ends with the session
        self._master = master
        self._conf = conf
        self._warehouse = warehouse
        self._archive = archive
        self._thread: threading.Thread | None = None
        self._found: SparkSession | None = None
        self._error: Exception | None = None

    @property
    def begun(self) -> bool:
        """Whether it was begun ahead, and nobody has taken it yet."""
        return self._thread is not None

    def begin(self) -> None:
        """Returns at once. Whoever begins it sees to it that it is taken."""

        def body() -> None:
            self._found = self._start()

        def failed(error: Exception) -> None:
            self._error = error

        self._thread = threads.start("forebay-spark", body, failed, logged=False)

    def take(self) -> SparkSession:
        """Blocks until Spark has started; raises why it could not."""
        if self._thread is None:
            return self._start()
        self._thread.join()
        found, error = self._found, self._error
        self._thread = self._found = self._error = None
        if error is not None:
            raise error
        assert found is not None
        return found

    def _start(self) -> SparkSession:
        from forebay.runtime import spark as sparks

        self.owned = not sparks.is_running()
        if not self.owned:
            return sparks.beside(self._conf)
        return sparks.start(self._master, self._conf, self._warehouse, self._archive)
