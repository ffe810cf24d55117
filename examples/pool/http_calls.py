"""An HTTP service called for each order, by a plain function: it runs in threads, fifty at a time."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import forebay
from examples.pool.orders import orders

COUNT = 500
taken: list[int] = []


class Service(BaseHTTPRequestHandler):
    """Takes 20 ms for an order, and now and then has none."""

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.02)
        unwell = order["id"] % 50 == 7 and order["attempt"] == 1
        self.send_response(503 if unwell else 204)
        self.end_headers()
        if not unwell:
            taken.append(order["id"])

    def log_message(self, *_: Any) -> None: ...


async def main(servers: str, port: int) -> None:
    def post(record: forebay.Record) -> None:
        body = json.dumps({**record.value, "attempt": record.attempt}).encode()
        urllib.request.urlopen(urllib.request.Request(f"http://localhost:{port}/", body), timeout=10).close()

    pool = forebay.Pool(
        bootstrap_servers=servers,
        topics=["orders"],
        group_id="posting",
        format="json",
        workers=50,
        retry_backoff_ms=50,
    )
    await pool.start(post)
    while pool.stats().completed < COUNT:
        await asyncio.sleep(0.01)
    await pool.stop()
    print(f"{len(set(taken))} orders posted, {pool.stats().retries} of them at the second attempt")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("localhost", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with orders(COUNT) as servers:
        asyncio.run(main(servers, server.server_port))
