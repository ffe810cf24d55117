"""What the tasks of a shared read's batch answered, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from forebay.runtime.task_accounts import TaskAccount
from forebay.source.accounts import Account, Span, joined_spans
from forebay.source.budget import InFlight
from forebay.source.key_marks import KeyMarks
from forebay.source.outlets import FILE, GROUPS, LATE, LATE_FILE
from forebay.source.parquet_file import WrittenFile
from forebay.source.serve import ACCOUNT, BATCH, FAILED, KEYS
from forebay.source.serving import BatchHeader


@dataclass(frozen=True)
class BatchAnswer:
    """Of all tasks of one batch. Files, groups and failures are by view."""

    header: BatchHeader
    accounts: Sequence[TaskAccount]
    files: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[pa.RecordBatch]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)  # rows of closed windows
    key_marks: KeyMarks | None = None  # of keys that have watermarks of their own, when the batch began
    keys: Sequence[pa.Table] = ()  # the greatest event times of keys that have watermarks of their own
    late_files: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)  # with these rows

    def account_of(self, view: str) -> Account:
        """What was read for a view."""
        total = Account()
        for task in self.accounts:
            if view in task.views:
                total.add(task.account)
        return total

    def spans_of(self, view: str) -> list[Span]:
        """Which records these were."""
        return joined_spans(span for task in self.accounts if view in task.views for span in task.spans)

    def read(self) -> InFlight:
        """All that the tasks fetched."""
        return InFlight.sum(InFlight(task.account.records, task.account.bytes) for task in self.accounts)


def answer_of(rows: pa.Table) -> BatchAnswer:
    """From the rows of `serve.ANSWER`."""
    header: BatchHeader | None = None
    accounts: list[TaskAccount] = []
    files: dict[str, list[WrittenFile]] = {}
    groups: dict[str, list[pa.RecordBatch]] = {}
    failed: dict[str, str] = {}
    late: dict[str, int] = {}
    keys: list[pa.Table] = []
    late_files: dict[str, list[WrittenFile]] = {}
    for kind, view, body in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if kind == BATCH:
            header = BatchHeader.from_json(body)
        elif kind == ACCOUNT:
            accounts.append(TaskAccount.of(json.loads(body)))
        elif kind == FILE:
            files.setdefault(view, []).append(WrittenFile(*json.loads(body)))
        elif kind == GROUPS:
            groups.setdefault(view, []).extend(pa.ipc.open_stream(body))
        elif kind == KEYS:
            keys.append(pa.ipc.open_stream(body).read_all())
        elif kind == LATE_FILE:
            late_files.setdefault(view, []).append(WrittenFile(*json.loads(body)))
        elif kind == LATE:
            late[view] = late.get(view, 0) + int(body)
        elif kind == FAILED:
            failed[view] = body.decode()
    assert header is not None
    return BatchAnswer(header, accounts, files, groups, failed, late, keys=keys, late_files=late_files)
