"""What the examples share: a broker, and a topic with orders in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from forebay import DevStack

CUSTOMERS = ("ann", "bob", "cem", "dee", "eve")


@contextmanager
def orders(count: int = 1000, *more_topics: str) -> Iterator[str]:
    """The address of a broker whose topic `orders` holds so many orders, keyed by customer."""
    with DevStack() as stack:
        fill(stack.bootstrap_servers, count, *more_topics)
        yield stack.bootstrap_servers


def fill(servers: str, count: int, *more_topics: str) -> None:
    topics = [NewTopic(name, 4, 1) for name in ("orders", *more_topics)]
    admin = AdminClient({"bootstrap.servers": servers})  # kept: its answers end with it
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        value = json.dumps({"id": number, "customer": customer, "amount": number % 97})
        producer.produce("orders", value, key=customer)
    producer.flush()
