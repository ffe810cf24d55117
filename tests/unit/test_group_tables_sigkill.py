"""A table of groups whose process is killed at any moment: every batch is in it once, or not at all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from groups_worker import LAYOUT, made, rows_of
from waiting import eventually

from forebay.views.groups import publishing

WORKER = Path(__file__).with_name("groups_worker.py")
KILLS = int(os.environ.get("FOREBAY_CHAOS_GROUPS_KILLS", "3"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(random.randrange(1_000_000))))


def expected(batch: int) -> dict[str | None, tuple[int, int]]:
    counted: Counter[str | None] = Counter()
    last: dict[str | None, int] = {}
    for number in range(batch + 1):
        for key, count in rows_of(number):
            counted[key] += count
            last[key] = number
    return {key: (counted[key], last[key]) for key in counted}


def found(rows: pa.Table) -> dict[str | None, tuple[int, int]]:
    assert len(set(rows.column("k").to_pylist())) == rows.num_rows
    return {row["k"]: (row["n"], row["last"]) for row in rows.to_pylist()}


@pytest.mark.parametrize("small", [1000, 5], ids=["merged", "with deletion vectors"])
def test_every_batch_is_there_once_after_sigkill_at_random_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(publishing, "SMALL", small)
    print("seed", SEED)
    chance = random.Random(SEED)
    DeltaTable.create(str(tmp_path / "table"), schema=LAYOUT.schema)
    made(tmp_path).create()
    for _ in range(KILLS):
        before = made(tmp_path).state.batch
        worker = subprocess.Popen([sys.executable, str(WORKER), str(tmp_path), str(small)])
        try:
            eventually(lambda least=before + 3: made(tmp_path).state.batch >= least, "three batches", 60)
            assert worker.poll() is None
            time.sleep(chance.random())  # the moment is what is random here, nothing is waited for
        finally:
            worker.kill()
            worker.wait()
        reader = made(tmp_path)
        batch = reader.state.batch
        assert reader.holds("q", batch)
        assert not reader.holds("q", batch + 1)
        assert found(reader.rows()) == expected(batch)
        public = DeltaTable(str(tmp_path / "table"))
        newest = public.transaction_version("forebay.groups")
        assert found(pa.table(public.scan())) == expected(-1 if newest is None else newest)
    table = made(tmp_path)
    table.publish()
    assert found(pa.table(DeltaTable(str(tmp_path / "table")).scan())) == expected(batch)
