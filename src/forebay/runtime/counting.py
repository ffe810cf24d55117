"""Brings the catalog's counts up to the checkpoint.

A batch is counted when Spark reports it, which is just after it is in the checkpoint: from where the count stood to
where the batch ended, so that a report that never came is made up for by the next. A process that is killed in between
leaves batches that are done but not counted; they are counted before the query goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forebay.catalog import BatchRecord, Catalog
from forebay.connectors.contract import Offsets, SourceConnector
from forebay.deadletter.policy import ErrorPolicy, SourceFolder
from forebay.deadletter.report import REPORT
from forebay.errors import ForebayError
from forebay.home_tables import Lost
from forebay.source import accounts
from forebay.source.accounts import Account
from forebay.views.paths import ViewPaths

log = logging.getLogger("forebay.accounts")


@dataclass(frozen=True)
class BatchToCount:
    """A batch, and what Spark reports of it, where it does."""

    number: int
    late: int = 0
    took_ms: int = 0


class Counted(Protocol):
    """A view whose batches are counted."""

    name: str
    starts: dict[str, Offsets]
    connectors: dict[str, SourceConnector]
    paths: ViewPaths

    def account_folders(self, source: str) -> Sequence[Path]:
        """Where is written down what tasks read for it and is not counted yet."""
        ...


def recount(catalog: Catalog, query: Counted, batch: int, ends: Mapping[str, Offsets]) -> None:
    """Bring the totals of a view up to where a batch ended in each source."""
    for name, end in ends.items():
        try:
            count(catalog, query, name, end, BatchToCount(batch))
        except ForebayError as error:
            log.warning("batch %d of view '%s' cannot be counted again: %s", batch, query.name, error.message)


def count(catalog: Catalog, query: Counted, name: str, end: Offsets, batch: BatchToCount) -> int:
    """Put into the catalog what was read of a source since it was last counted, up to where a batch ended.

    By what the tasks wrote down, else by reading it again. Returns how many records that were; 0 for a batch that was
    counted before.
    """
    counted = next(iter(catalog.totals(view=query.name, source=name)), None)
    if counted is not None and counted.batch >= batch.number:
        return 0
    start = query.starts[name] if counted is None else dict(counted.offsets)
    connector = query.connectors[name]
    found = accounts.find(query.account_folders(name), connector.splits(start, end, 1), query.name)
    policy = SourceFolder.of(query.paths.root.parent.parent, name).read_policy()
    account = found.account if found.whole else _read_again(connector, start, end, found.account, policy)
    lost = connector.lost(start, end)
    record = batch_record(query.name, name, batch, account, lost, end)
    catalog.record_batch(record)
    report(name, query.name, account)
    found.remove()
    return account.records


def batch_record(
    view: str, source: str, batch: BatchToCount, account: Account, lost: tuple[Lost, ...], end: Offsets
) -> BatchRecord:
    """A batch of a view as the catalog keeps it."""
    return BatchRecord(
        view, source, batch.number, account.records, account.rejected, account.example, lost, batch.late, end,
        batch.took_ms, account.skipped, account.dlq, account.rate_limited, tuple(account.limited),
        account.case_mismatches, account.bytes,
    )  # fmt: skip


def report(source: str, view: str, account: Account) -> None:
    """Say what was bad, and what became of it."""
    for kind, number in account.rejected.items():
        REPORT.tell(source, view, kind, number, account.example)
    for event, number in (("letters_written", account.dlq), ("letters_kept_out", account.rate_limited)):
        if number:
            REPORT.done(source, view, event, number)


def _read_again(
    connector: SourceConnector, start: Offsets, end: Offsets, known: Account, policy: ErrorPolicy
) -> Account:
    """Counted anew; what became of the bad records is known only from what was written down, and that is durable.

    Where letters have no limit, each bad record has one: it was written before the batch could be done.
    """
    account = Account(dlq=known.dlq, limited=known.limited)
    for split in connector.plan_batches(start, end, 1):
        for part in connector.read_batch(split):
            account.count(part)
    if policy.strategy == "dead_letter" and not policy.max_per_second:
        account.dlq = sum(account.rejected.values())
    return account
