"""Whether a view can be read as the `group.mode` of its source says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import ForebayError, GroupInUseError, UnsupportedSqlError
from forebay.runtime.sources import Sources


class GroupChecks:
    """Of a session. Blocks while the brokers are asked."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._asked: set[str] | None = None  # sources, where each is asked for once

    @contextmanager
    def once(self) -> Iterator[None]:
        """While many views are started: the brokers are asked once for each source."""
        self._asked = set()
        try:
            yield
        finally:
            self._asked = None

    def check(self, source: str, *, shared_read: bool = True) -> None:
        """`shared_read`: whether the view has no streaming query of its own."""
        connector = self._sources.connector(source)
        if connector.share is not None and not shared_read:
            raise UnsupportedSqlError(
                f"source '{source}' has 'group.mode' = 'shared', and this view needs a streaming query of its own: what "
                "Spark keeps for it cannot move to another process with a partition",
                remedy="select or group by one source with EMIT CHANGES; or set group.mode = 'exclusive'",
            )
        if self._asked is not None:
            if source in self._asked:
                return
            self._asked.add(source)
        try:
            others = connector.others_in_group()
        except ForebayError:
            return  # what is wrong with the brokers, others say
        if others:
            raise GroupInUseError(
                f"group '{connector.group}' of source '{source}' has {others}; the brokers do not let this source commit "
                "its offsets beside it"
            )
