"""Counts again what a crash left uncounted.

A batch is counted when Spark reports it, which is just after it is in the checkpoint. A process that is
killed in between leaves batches that are done but not counted. Their offsets are in the checkpoint, so
they are read once more, for counting only, before the query goes on.
"""

from __future__ import annotations

import logging

from forebay.catalog import BatchRecord, Catalog
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.errors import ForebayError
from forebay.runtime import checkpoints
from forebay.runtime.query import RunningQuery, by_source
from forebay.source.accounts import Account, read, remove

log = logging.getLogger("forebay.accounts")


def recount(catalog: Catalog, query: RunningQuery) -> None:
    """Bring the totals of a view up to its checkpoint."""
    done = checkpoints.committed(query.paths.checkpoint)
    if done is None:
        return
    counted = {totals.source: totals for totals in catalog.totals(view=query.name)}
    for batch in range(done.batch + 1):
        missing = [name for name in query.connectors if name not in counted or counted[name].batch < batch]
        if not missing or not (query.paths.checkpoint / "offsets" / str(batch)).exists():
            continue
        ends = by_source(checkpoints.offsets(query.paths.checkpoint, batch))
        for name in missing:
            start = dict(counted[name].offsets) if name in counted else query.progress.positions[name]
            record = _count(query, name, batch, start, ends[name])
            if record is not None:
                catalog.record_batch(record)
        counted = {totals.source: totals for totals in catalog.totals(view=query.name)}


def _count(query: RunningQuery, name: str, batch: int, start: Offsets, end: Offsets) -> BatchRecord | None:
    connector = query.connectors[name]
    try:
        account = read_again(connector, start, end)
    except ForebayError as error:
        log.warning("batch %d of view '%s' cannot be counted again: %s", batch, query.name, error.message)
        return None
    return BatchRecord(
        query.name, name, batch, account.records, account.rejected, account.example,
        connector.lost(start, end), 0, end, 0, account.skipped,
    )  # fmt: skip


def account_of(query: RunningQuery, name: str, start: Offsets, end: Offsets, parallelism: int) -> Account:
    """What a batch read of a source, by what its tasks wrote down; where one did not, by reading it again."""
    connector = query.connectors[name]
    splits = connector.plan_batches(start, end, parallelism)
    return read(query.paths.accounts, splits) or read_again(connector, start, end)


def forget(query: RunningQuery, name: str, start: Offsets, end: Offsets, parallelism: int) -> None:
    """Once it is in the catalog."""
    remove(query.paths.accounts, query.connectors[name].plan_batches(start, end, parallelism))


def read_again(connector: SourceConnector, start: Offsets, end: Offsets) -> Account:
    account = Account()
    for split in connector.plan_batches(start, end, 1):
        for part in connector.read_batch(split):
            account.count(part)
    return account
