"""An entry of a Delta log, written by hand.

deltalake's own transaction, and the look for what it has just written, take ten milliseconds of CPU time a batch and table:
with ten views that is most of what a small batch costs. It has no place for deletion vectors, either. What is here is the
part of the protocol that a table needs which is appended to; deltalake reads it, sums it up and does all the rest.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from forebay.files import sync
from forebay.object_path import ObjectPath, TablePath

DRAFT = ".forebay-"  # how the name of an entry begins that is not one yet


def write_entry(
    table: TablePath,
    version: int,
    actions: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
    transactions: Iterable[tuple[str, int]] = (),
) -> None:
    """Make a version of a table. It is on the disk when this returns. FileExistsError if somebody else has made it.

    `about` goes into the commit's information, `transactions` are names with the number of what they have done last.
    """
    log = table / "_delta_log"
    info = {
        "timestamp": now_ms(), "operation": "WRITE", "engineInfo": "forebay", "txnId": str(uuid.uuid4()), **about,
    }  # fmt: skip
    lines = [
        {"commitInfo": info},
        *({"txn": {"appId": name, "version": number}} for name, number in transactions),
        *actions,
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    entry = entry_of(table, version)
    if isinstance(entry, ObjectPath) or isinstance(log, ObjectPath):
        assert isinstance(entry, ObjectPath)
        _create(entry, text.encode())
        return
    draft = log / f"{DRAFT}{uuid.uuid4().hex}"
    try:
        # Its content is on the disk before it has its name; the name of the draft need never be there.
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, entry)
    finally:
        draft.unlink(missing_ok=True)
    sync(log)


def write_beside_others(table: TablePath, version: int, actions: Sequence[Mapping[str, Any]]) -> int:
    """Make a version after this one, of a table that others append to; returns which. FileExistsError if one of them did more
    than that.

    What was worked out of `version` holds as long as files have only come since.
    """
    while True:
        try:
            write_entry(table, version + 1, actions, {})
            return version + 1
        except FileExistsError:
            others = [json.loads(line) for line in entry_of(table, version + 1).read_text().splitlines()]
            if any(kind not in ("commitInfo", "txn", "add") for action in others for kind in action):
                raise
            version += 1


def _create(entry: ObjectPath, data: bytes) -> None:
    """A store whose answer was lost is asked again, and says then that the entry is there: it may be this one."""
    try:
        entry.create(data)
    except FileExistsError:
        if entry.read_bytes() != data:
            raise


def added(
    path: str, size: int, stats: str, *, changes: bool = True, vector: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A file becomes part of the table. `changes`: its rows are new, and not only elsewhere."""
    found = {
        "path": quote(path), "partitionValues": {}, "size": size, "modificationTime": now_ms(),
        "dataChange": changes, "stats": stats,
    }  # fmt: skip
    return {"add": found | ({"deletionVector": vector} if vector else {})}


def removed(
    path: str, size: int, *, changes: bool, vector: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A file is no part of the table any more."""
    found = {
        "path": quote(path), "deletionTimestamp": now_ms(), "dataChange": changes, "extendedFileMetadata": True,
        "partitionValues": {}, "size": size,
    }  # fmt: skip
    return {"remove": found | ({"deletionVector": vector} if vector else {})}


def entry_of(table: TablePath, version: int) -> TablePath:
    return table / "_delta_log" / f"{version:020d}.json"


def now_ms() -> int:
    return int(time.time() * 1000)
