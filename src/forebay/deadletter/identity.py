"""Which record a letter is about. The same letter written twice is one letter."""

from __future__ import annotations

from typing import NamedTuple


class Identity(NamedTuple):
    """Where a record is, and of which topic: one that was deleted and made again has other records at its offsets.

    `topic_id` is empty where whoever wrote the letter did not know it: a pool, an agent, an older version.
    """

    topic: str
    partition: int
    offset: int
    topic_id: str = ""

    @property
    def place(self) -> str:
        """`orders/3/12345`: what people type and see."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    def __str__(self) -> str:
        """`orders/3/12345/9sXab…`: what `forebay.replayed.from` holds, and what tells two letters of one place apart."""
        return f"{self.place}/{self.topic_id}" if self.topic_id else self.place

    def is_named_by(self, other: Identity) -> bool:
        """Whether the other is this one, or its place without the topic's id."""
        return other in (self, self._replace(topic_id=""))

    @staticmethod
    def parse(text: str) -> Identity:
        """Of either form. ValueError if it is none."""
        topic, partition, offset, *id = text.split("/", 3)  # an id may have slashes, a topic has none
        if not topic or not partition.isdigit() or not offset.isdigit():
            raise ValueError(text)
        return Identity(topic, int(partition), int(offset), *id)
