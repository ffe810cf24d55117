"""The floor: a plain confluent-kafka consumer that looks at nothing. No decoding, no query."""

from __future__ import annotations

import sys
import uuid

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.session import Answer, Opening, Reading, serve

NAME = "confluent-kafka consume()"
PEER = Peer(NAME, "benchmarks.peers.floor", lambda _: Prepared(sys.executable))
CHUNK = 10_000
SILENCE_S = 30.0


class Floor:
    """Counts messages; the sum stays 0, because nothing is decoded."""

    def __init__(self, opening: Opening) -> None:
        import confluent_kafka

        self.version = f"{confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}"
        self._servers = opening.bootstrap_servers

    def read(self, reading: Reading) -> Answer:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        settings = {"bootstrap.servers": self._servers, "group.id": uuid.uuid4().hex}
        consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 5})
        consumer.assign(
            [TopicPartition(reading.topic, p, OFFSET_BEGINNING) for p in range(reading.partitions)]
        )
        seen = 0
        try:
            while seen < reading.records:
                messages = consumer.consume(min(CHUNK, reading.records - seen), timeout=SILENCE_S)
                if not messages:
                    raise TimeoutError(f"nothing for {SILENCE_S} s after {seen:,} records")
                seen += sum(message.error() is None for message in messages)
        finally:
            consumer.close()
        return {"": [seen, 0]}

    def close(self) -> None:
        pass


if __name__ == "__main__":
    serve(Floor)
