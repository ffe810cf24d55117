"""How far a group is behind in the log of artifacts, and publishers that wait for it."""

from __future__ import annotations

import asyncio
import logging
import time

from confluent_kafka import Consumer, KafkaException

from forebay.errors import ForebayError, UnreachableError
from forebay.kafka.admin import Cluster
from forebay.kafka.consumers import committed_offsets
from forebay.kafka.missing_acls import READ, on_group, on_topics
from forebay.kafka.partitions import PartitionOffset
from forebay.kafka.settings import CLIENT_LOG, connection_settings, translate
from forebay.options import Options

log = logging.getLogger("forebay.blackboard")

LOOK_S = 0.25  # how old the word on the lag may be, while it matters
CALM_S = 1.0  # ... and while it does not
TIMEOUT_S = 10.0


class LagMonitor:
    """The lag of one group in one topic, a partition at a time. Asks the broker when it is called."""

    def __init__(self, options: Options, topic: str, group: str) -> None:
        self._options = options
        self._topic = topic
        self._acls = (*on_topics(READ, [topic]), on_group(group))
        self._cluster = Cluster(options)
        settings = connection_settings(options) | {"group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(settings, logger=CLIENT_LOG)  # it never joins

    def lag(self) -> dict[int, int]:
        """Records that the group has not committed; of a partition without a commit, all of them.

        Blocks until the brokers answer; `UnreachableError` where they do not.
        """
        count = self._cluster.describe([self._topic])[self._topic].partitions
        keys = [(self._topic, number) for number in range(count)]
        try:
            wanted = [PartitionOffset(*key) for key in keys]
            committed = committed_offsets(self._consumer, wanted, TIMEOUT_S)
        except KafkaException as error:
            doing = "asking for the group's offsets"
            raise translate(error.args[0], self._options, doing, *self._acls) from None
        ends, starts = self._cluster.latest(keys), self._cluster.earliest(keys)
        found = {}
        for tp in committed:
            key = (tp.topic, tp.partition)
            found[tp.partition] = max(0, ends[key] - (tp.offset if tp.offset >= 0 else starts[key]))
        return found

    def close(self) -> None:
        """Close its connections."""
        self._consumer.close()
        self._cluster.close()


class Throttle:
    """Holds publishers while the slowest partition's lag is above `lag.high`, until it is at `lag.low`."""

    def __init__(self, options: Options, topic: str) -> None:
        self._options = options
        group = options["lag.group"]
        self._monitor = LagMonitor(options, topic, group) if group else None
        self._looked = 0.0
        self._held = False

    @property
    def held(self) -> bool:
        return self._held

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()

    async def wait(self) -> None:
        if self._monitor is None:
            return
        if time.monotonic() - self._looked > CALM_S:
            await self._look()
        while self._held:
            await asyncio.sleep(LOOK_S)  # the broker does not tell when a group has caught up
            if time.monotonic() - self._looked > LOOK_S:
                await self._look()

    async def _look(self) -> None:
        self._looked = time.monotonic()
        assert self._monitor is not None
        try:
            lag = max((await asyncio.to_thread(self._monitor.lag)).values(), default=0)
        except UnreachableError:
            return  # the publish itself will say so
        except ForebayError:
            self._held = False  # who cannot see the group must not be stopped for ever by it
            raise
        was = self._held
        self._held = lag > (self._options["lag.low"] if was else self._options["lag.high"] - 1)
        if self._held != was:
            log.warning(
                "event=%s group=%s lag=%d",
                "publishers_wait" if self._held else "publishers_go_on", self._options["lag.group"], lag,
            )  # fmt: skip
