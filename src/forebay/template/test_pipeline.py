"""The pipeline on a real broker of its own, from records to rows."""

from pathlib import Path

import pytest

import forebay

HERE = Path(__file__).parent


def test_every_good_order_counts_and_the_bad_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forebay.DevStack() as stack:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", stack.bootstrap_servers)
        stack.create_topic("orders")
        stack.produce("orders", (HERE / "orders.jsonl").read_text().splitlines())
        with forebay.connect(home=tmp_path / "home") as db:
            db.execute((HERE / "pipeline.sql").read_text())
            db.wait(until_caught_up=True, timeout=120)
            rows = db.sql("SELECT country, orders, total FROM revenue ORDER BY country").fetchall()
            letters = [letter.id for letter in db.dead_letters("orders")]
    assert rows == [("DE", 1, 7.25), ("FR", 1, 20.0), ("NL", 2, 42.5)]
    assert letters == ["orders/0/3"]
