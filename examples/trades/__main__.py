"""The demo: a real broker, real Spark, 400,000 trades, and an account that adds up.

python -m examples.trades
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import forebay
from examples.trades.producer import TradeProducer

HERE = Path(__file__).parent
HOME = Path(".forebay/demo")
TOPIC = "trades"
PARTITIONS = 4
console = Console()


class Bars(threading.Thread):
    """Follows the view and keeps its newest rows, as any subscriber would."""

    def __init__(self, session: forebay.Session) -> None:
        super().__init__(name="bars", daemon=True)
        self._changes = session.subscribe("bars")
        self.rows: dict[tuple[object, str], dict[str, object]] = {}

    def run(self) -> None:
        for batch in self._changes:
            for row in batch.to_pylist():
                if row["_change_type"] != "update_preimage":
                    self.rows[row["minute"], row["symbol"]] = row

    def stop(self) -> None:
        self._changes.close()
        self.join(5)

    def table(self) -> Table:
        table = Table(
            title=f"bars: {len(self.rows)} so far, the newest:", title_justify="left", show_edge=False
        )
        for name in ("minute", "symbol", "open", "high", "low", "close", "volume", "trades"):
            table.add_column(name, justify="left" if name in ("minute", "symbol") else "right")
        newest = sorted(self.rows.values(), key=lambda row: (row["minute"], row["symbol"]))[-6:]
        for row in newest:
            prices = (f"{row[name]:.2f}" for name in ("open", "high", "low", "close"))
            table.add_row(
                f"{row['minute']:%H:%M}",
                str(row["symbol"]),
                *prices,
                f"{row['volume']:,}",
                f"{row['trades']:,}",
            )
        return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.trades", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--per-second", type=int, default=15_000)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("forebay.errors").setLevel(logging.ERROR)  # rejected records are in the account
    shutil.rmtree(HOME, ignore_errors=True)
    console.print("Forebay demo: trades → Kafka → Spark → one-minute bars", style="bold")
    with console.status("starting Kafka (the first time it is downloaded, about 45 MB) …"):
        stack = forebay.DevStack().start()
    try:
        return demo(stack.bootstrap_servers, asked.records, asked.per_second)
    finally:
        stack.stop()


def demo(servers: str, records: int, per_second: int) -> int:
    os.environ["KAFKA_BOOTSTRAP_SERVERS"] = servers
    admin = AdminClient({"bootstrap.servers": servers}, logger=logging.getLogger("examples.trades"))
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        made.result()
    console.print(f"Kafka is up at {servers}; topic {TOPIC} has {PARTITIONS} partitions", highlight=False)
    with forebay.connect(home=HOME) as session:
        with console.status("starting Spark and the pipeline of examples/trades/pipeline.sql …"):
            session.execute((HERE / "pipeline.sql").read_text())
        producer = TradeProducer(servers, TOPIC, records, per_second)
        producer.start()
        bars = Bars(session)
        bars.start()
        watch(session, producer, bars)
        with console.status("waiting until all of it is in the view …"):
            session.wait(until_caught_up=True, timeout=60)
        bars.stop()
        return account(session, producer)


def watch(session: forebay.Session, producer: TradeProducer, bars: Bars) -> None:
    progress = Progress(
        TextColumn("produced"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[line]}")
    )
    task = progress.add_task("", total=producer._count, line="")
    last = 0.0
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            alive = producer.is_alive()
            query = session.queries()[0]
            lag = "–" if query.lag is None else f"{query.lag:,}"
            line = f"{query.records:,} read, {query.records_per_second:,.0f}/s, lag {lag}, batch {query.batch_ms:,} ms"
            progress.update(task, completed=producer.sent, line=line)
            live.update(Group(progress, "", bars.table()))
            if not console.is_terminal and time.monotonic() - last > 5:
                last = time.monotonic()
                print(f"produced {producer.sent:,}; {line}; {len(bars.rows)} bars", flush=True)
            session.check()
            if not alive and query.records >= producer.sent:
                return
            time.sleep(0.25)


def account(session: forebay.Session, producer: TradeProducer) -> int:
    """Whether everything that was produced is somewhere, and the group knows."""
    query = session.queries()[0]
    delivered = session.sql("SELECT sum(trades) AS n FROM bars").fetchall()[0][0]
    lags = session.lag()
    table = Table(title="The account", title_justify="left", show_edge=False)
    for name in ("what", "records"):
        table.add_column(name, justify="right" if name == "records" else "left")
    table.add_row("produced (acknowledged by the broker)", f"{producer.sent:,}")
    table.add_row("delivered (summed over the bars)", f"{delivered:,}")
    table.add_row("rejected (broken on purpose: " + f"{producer.bad:,})", f"{query.rejected:,}")
    for row in lags:
        committed = f"{row.committed:,}" if row.committed is not None else "none"
        table.add_row(f"{row.topic}-{row.partition}: group offset / end offset", f"{committed} / {row.end:,}")
    table.add_row("lag", f"{sum(row.lag for row in lags):,}")
    console.print(table)
    adds_up = (
        producer.failed == 0
        and producer.sent == delivered + query.rejected
        and query.rejected == producer.bad
        and all(row.committed == row.end and row.lag == 0 for row in lags)
    )
    if not adds_up:
        console.print("It does not add up.", style="bold red")
        return 1
    console.print(
        "produced = delivered + rejected, group offsets = end offsets, lag 0: it adds up.", style="bold green"
    )
    console.print(
        f"""
Next:
  .venv/bin/forebay sql --home {HOME} -e "SELECT * FROM bars ORDER BY volume DESC LIMIT 5"
  .venv/bin/forebay sql --home {HOME} -e "DESCRIBE VIEW bars"
  .venv/bin/forebay dev up          # a broker and a registry that stay
  .venv/bin/forebay sql             # a shell: CREATE SOURCE … FROM KAFKA (…)
  less examples/trades/pipeline.sql
""",
        highlight=False,
        markup=False,
        soft_wrap=True,  # a command stays one line, to be copied
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
