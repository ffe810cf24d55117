"""Counts again what a crash left uncounted.

A batch is counted when Spark reports it, which is just after it is in the checkpoint. A process that is
killed in between leaves batches that are done but not counted. Their offsets are in the checkpoint, so
they are read once more, for counting only, before the query goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from forebay.catalog import BatchRecord, Catalog
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.deadletter.report import REPORT
from forebay.errors import ForebayError
from forebay.runtime import checkpoints
from forebay.runtime.query import RunningQuery, by_source
from forebay.source.accounts import Account, read, remove

log = logging.getLogger("forebay.accounts")


def recount(catalog: Catalog, query: RunningQuery, parallelism: int) -> None:
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
            try:
                count(catalog, query, name, (start, ends[name]), BatchTold(batch), parallelism)
            except ForebayError as error:
                log.warning(
                    "batch %d of view '%s' cannot be counted again: %s", batch, query.name, error.message
                )
        counted = {totals.source: totals for totals in catalog.totals(view=query.name)}


@dataclass(frozen=True)
class BatchTold:
    """What Spark says of a batch, where it says anything."""

    number: int
    late: int = 0
    took_ms: int = 0


def count(
    catalog: Catalog,
    query: RunningQuery,
    name: str,
    span: tuple[Offsets, Offsets],
    batch: BatchTold,
    parallelism: int,
) -> int:
    """Put into the catalog what a batch read of a source: by what its tasks wrote down, else by reading again.

    Returns how many records that were.
    """
    connector = query.connectors[name]
    splits = connector.plan_batches(*span, parallelism)
    account = read(query.paths.accounts, splits) or _read_again(connector, *span)
    catalog.record_batch(
        BatchRecord(
            query.name, name, batch.number, account.records, account.rejected, account.example,
            connector.lost(*span), batch.late, span[1], batch.took_ms, account.skipped, account.dlq,
            account.rate_limited, tuple(account.limited),
        )
    )  # fmt: skip
    for kind, number in account.rejected.items():
        REPORT.tell(name, query.name, kind, number, account.example)
    for event, number in (("letters_written", account.dlq), ("letters_kept_out", account.rate_limited)):
        if number:
            REPORT.done(name, query.name, event, number)
    remove(query.paths.accounts, splits)
    return account.records


def _read_again(connector: SourceConnector, start: Offsets, end: Offsets) -> Account:
    account = Account()
    for split in connector.plan_batches(start, end, 1):
        for part in connector.read_batch(split):
            account.count(part)
    return account
