"""Makes trades: prices that wander, event times that go on, and now and then a record nobody can read."""

from __future__ import annotations

import logging
import random
import threading
import time

from confluent_kafka import Producer

SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA")
MARKET_OPEN_MS = 1_768_487_400_000  # 2026-01-15 14:30 UTC
TRADE_EVERY_MS = 1.5  # of market time: 400,000 trades are ten minutes
BAD_EVERY = 1_000  # one record in a thousand is broken


class TradeProducer(threading.Thread):
    """Produces in the background; `sent` counts what the broker has acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str, count: int, per_second: int) -> None:
        super().__init__(name="trades", daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "compression.type": "lz4"},
            logger=logging.getLogger("examples.trades"),
        )
        self._topic = topic
        self._count = count
        self._per_second = per_second
        self.sent = 0
        self.bad = 0
        self.failed = 0

    def run(self) -> None:
        prices = {symbol: 80.0 + 40 * index for index, symbol in enumerate(SYMBOLS)}
        dice = random.Random(7)
        started = time.monotonic()
        for number in range(self._count):
            symbol = dice.choice(SYMBOLS)
            prices[symbol] = max(1.0, prices[symbol] + dice.gauss(0, 0.02))
            broken = number % BAD_EVERY == BAD_EVERY - 1
            self.bad += broken
            self._send(self._trade(number, symbol, prices[symbol], dice.randint(1, 500), broken))
            if number % 500 == 0:
                self._producer.poll(0)
                ahead = number / self._per_second - (time.monotonic() - started)
                if ahead > 0:
                    time.sleep(ahead)
        self._producer.flush()

    def _trade(self, number: int, symbol: str, price: float, quantity: int, broken: bool) -> str:
        if broken:
            return f'{{"trade_id": {number}, "symbol": "{symbol}", "price": "oops"'
        when = MARKET_OPEN_MS + int(number * TRADE_EVERY_MS)
        return (
            f'{{"trade_id":{number},"symbol":"{symbol}","price":{price:.2f},'
            f'"quantity":{quantity},"event_time":{when}}}'
        )

    def _send(self, value: str) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.sent += 1
        else:
            self.failed += 1
