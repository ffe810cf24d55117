"""What became of bad records in a batch of a shared read, written down before any table takes the batch.

A process may be killed when a table has a batch and the catalog has not counted it. The table then does not want the batch
again, so no task reads it for that view again, and nobody else would know which bad records have a letter and which the rate
limit kept out. Records can be counted anew from the topic; this cannot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from forebay.catalog import Totals
from forebay.connectors.contract import SourceConnector
from forebay.files import make_folder, write_whole
from forebay.runtime.read_answer import BatchAnswer


class ReadAccounts:
    """Of one shared read: a file for each batch that had bad records, until all views of the batch have counted it."""

    def __init__(self, folder: Path, connector: SourceConnector) -> None:
        self._folder = folder
        self._connector = connector

    def write(self, query_id: str, batch: int, views: Iterable[str], answer: BatchAnswer) -> None:
        """On the disk when it returns.

        A batch that is repeated has a file for each attempt: the limit may let other records through each time, and one
        view's table may have it from the first attempt, another's from the second. A record may then have a letter and be
        among those that were kept out; a recovery sees that it has one.
        """
        if not any(task.account.dlq or task.account.limited for task in answer.accounts):
            return
        now = time.time_ns()  # by one clock: those of tasks may differ
        tasks = [{**task.form, "written": now} for task in answer.accounts]
        form = {"views": sorted(views), "end": answer.header.end, "tasks": tasks}
        make_folder(self._folder, 0o700)
        write_whole(self._folder / f"{query_id}-{batch}-{now}.json", json.dumps(form).encode())

    def remove_counted(
        self, totals: Callable[..., Sequence[Totals]], source: str, known: Iterable[str]
    ) -> None:
        """Those that no view needs: all that the batch was for have counted it, or are gone."""
        files = list(self._folder.glob("*.json"))
        if not files:
            return
        at = {each.view: dict(each.offsets) for each in totals(source=source)}
        views = set(known)
        for path in files:
            form = json.loads(path.read_bytes())
            waiting = (
                view
                for view in views.intersection(form["views"])
                if view not in at or not self._connector.reached(at[view], form["end"])
            )
            if not any(waiting):
                path.unlink()
