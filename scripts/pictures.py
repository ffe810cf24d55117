"""The pictures of the README: a demo pipeline with poison in its topic, its dashboard, and a browser that repairs and replays.

    make pictures        # docs/pictures/desk.png and desk.gif

Needs Chromium and the development dependencies. `--serve` only serves the demo, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import forebay
from forebay.web.backend import Backend
from forebay.web.server import Dashboard

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
CUSTOMERS = ("anna", "bo", "chen", "dara", "eli", "fatou", "gus", "hana")
PIPELINE = """
CREATE SOURCE orders (id BIGINT NOT NULL, customer STRING, amount DOUBLE, placed_at TIMESTAMP)
FROM KAFKA (brokers = '{brokers}', topic = 'orders', group_id = 'shop', auto_offset_reset = 'earliest')
FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'orders-dlq');
CREATE SOURCE payments (id BIGINT NOT NULL, order_id BIGINT, method STRING)
FROM KAFKA (brokers = '{brokers}', topic = 'payments', group_id = 'shop-payments', auto_offset_reset = 'earliest')
FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'payments-dlq');
CREATE MATERIALIZED VIEW all_orders AS SELECT id, customer, amount, placed_at FROM orders;
CREATE MATERIALIZED VIEW by_customer AS SELECT customer, count(*) AS orders, sum(amount) AS spent FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW paid AS SELECT id, order_id, method FROM payments;
"""


@contextlib.contextmanager
def demo(port: int = 0) -> Iterator[Dashboard]:
    """A shop: orders, of which some have an amount that is no number, and payments."""
    folder = Path(tempfile.mkdtemp(prefix="forebay-pictures-"))
    try:
        with forebay.DevStack() as stack, forebay.connect(home=folder / "shop", master="local[2]") as session:
            admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
            for made in admin.create_topics([NewTopic("orders", 3, 1), NewTopic("payments", 2, 1)]).values():
                made.result(30)
            _await_leaders(admin, "orders", "payments")
            session.execute(PIPELINE.format(brokers=stack.bootstrap_servers))
            done = threading.Event()
            feeder = threading.Thread(target=_feed, args=(stack.bootstrap_servers, done))
            feeder.start()
            try:
                with Dashboard(Backend(session.home, session), port=port) as dashboard:
                    yield dashboard
            finally:
                done.set()
                feeder.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await_leaders(admin: AdminClient, *topics: str) -> None:
    """A topic that has just been made has no leaders yet."""
    for _ in range(300):
        known = admin.list_topics(timeout=10).topics
        partitions = [each for topic in topics if topic in known for each in known[topic].partitions.values()]
        if partitions and all(each.leader >= 0 and each.error is None for each in partitions):
            time.sleep(0.5)  # the leader hears of it a moment after the metadata
            return
        time.sleep(0.1)
    raise TimeoutError("the topics of the demo have no leaders")


def _feed(brokers: str, done: threading.Event) -> None:
    """Forty orders a second, until it is enough; every fifteenth is bad."""
    producer = Producer({"bootstrap.servers": brokers})
    chance = random.Random(17)
    number = 0
    while not done.wait(0.1):
        for _ in range(4):
            number += 1
            producer.produce("orders", order(number, chance), key=str(number))
            producer.produce(
                "payments",
                json.dumps({"id": number, "order_id": number, "method": chance.choice(("card", "cash"))}),
            )
        producer.flush(10)


def order(number: int, chance: random.Random) -> str:
    """An order; now and then with a fault that somebody's program makes."""
    row: dict[str, object] = {
        "id": number, "customer": chance.choice(CUSTOMERS), "amount": round(chance.uniform(3, 90), 2),
        "placed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    if number % 15 == 0:
        row["amount"] = f"{row['amount']} EUR"
    elif number % 67 == 0:
        del row["id"]
    elif number % 101 == 0:
        return json.dumps(row)[:-18]
    return json.dumps(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="only serve the demo")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with demo(given.port) as dashboard:
        print(dashboard.url, flush=True)
        if given.serve:
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
            return
        from scripts.recording import record

        record(dashboard.url, PICTURES)


if __name__ == "__main__":
    main()
