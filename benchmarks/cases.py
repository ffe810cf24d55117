"""What is compared: formats, queries, sizes of record, numbers of partitions.

Every peer answers the same question about the same topic, and `records.expected` knows the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

FORMATS = ("json", "avro")
QUERIES = ("count", "filter", "windows")
SIZES = ("small", "medium", "large")
PARTITIONS = (1, 4, 16)

QUESTIONS = {
    "count": "count(*) and sum(quantity)",
    "filter": "the same where price is above a bound that half of the records pass",
    "windows": "count(*) and sum(quantity) per symbol and minute of event time",
}


@dataclass(frozen=True)
class Case:
    """One cell of the comparison."""

    format: str
    query: str
    size: str = "medium"
    partitions: int = 4

    @property
    def name(self) -> str:
        return f"{self.format} {self.query}, {self.size}, {self.partitions} partition" + (
            "s" if self.partitions > 1 else ""
        )

    @property
    def shape(self) -> str:
        """What decides the topic: cases that differ in the query only read the same one."""
        return f"{self.format}-{self.size}-{self.partitions}"


def possible(cases: Iterable[Case]) -> list[Case]:
    """Without windows over small records, which have neither key nor time; each once."""
    return list(dict.fromkeys(case for case in cases if (case.size, case.query) != ("small", "windows")))


def one_factor_at_a_time() -> list[Case]:
    """Every query, size and number of partitions, each varied around medium records in 4 partitions."""
    queries = [Case(f, query) for f, query in product(FORMATS, QUERIES)]
    sizes = [Case(f, "count", size) for f, size in product(FORMATS, SIZES)]
    partitions = [Case(f, "count", partitions=n) for f, n in product(FORMATS, PARTITIONS)]
    return by_topic(possible([*queries, *sizes, *partitions]))


def everything() -> list[Case]:
    return by_topic(possible(Case(f, q, s, n) for f, q, s, n in product(FORMATS, QUERIES, SIZES, PARTITIONS)))


def few() -> list[Case]:
    """Enough to see that every peer, format and query works."""
    return by_topic([Case(f, query) for f, query in product(FORMATS, QUERIES)])


def by_topic(cases: Iterable[Case]) -> list[Case]:
    """Cases of one topic next to each other, so that it can be deleted after them."""
    return sorted(cases, key=lambda c: (SIZES.index(c.size), c.partitions, FORMATS.index(c.format)))


def matching(cases: Iterable[Case], words: str) -> list[Case]:
    """The cases whose name has all these words: "json windows", "16", "large"."""
    wanted = words.split()
    return [case for case in cases if all(word in case.name.replace(",", "").split() for word in wanted)]
