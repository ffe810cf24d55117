"""Where the checkpoints of reads and of views with a query of their own are: in the home, or where `checkpoints` says.

A home remembers it in a file beside the rest of the read: a setting that is another one later moves nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import TypeAlias

from forebay.errors import StorageError
from forebay.files import make_folder, write_whole
from forebay.runtime.hadoop_path import REMEDY, HadoopPath, hadoop_url

log = logging.getLogger("forebay.checkpoints")

CheckpointPath: TypeAlias = Path | HadoopPath

LOCAL = "checkpoint"
ELSEWHERE = "checkpoint.url"


def checkpoints_of(given: str | None) -> str | None:
    """Where checkpoints of new reads are: what is given, or FOREBAY_CHECKPOINTS; None: in the home. OptionValueError."""
    found = given or os.environ.get("FOREBAY_CHECKPOINTS") or None
    return None if found is None else hadoop_url(found)


def checkpoint_of(root: Path) -> CheckpointPath:
    """Of the read, or the view with a query of its own, that has this folder in the home."""
    try:
        return HadoopPath((root / ELSEWHERE).read_text())
    except FileNotFoundError:
        return root / LOCAL


# What Spark says when the file system of a checkpoint is away, is starting, or has nobody to write to.
_AWAY = (
    "java.net.ConnectException", "java.net.NoRouteToHostException", "java.net.SocketTimeoutException", "java.net.SocketException",
    "java.net.UnknownHostException", "java.io.EOFException", "SafeModeException", "StandbyException", "RetriableException",
    "could only be written to 0 of the", "BlockMissingException", "java.nio.channels.ClosedChannelException",
)  # fmt: skip


def checkpoint_away(path: CheckpointPath, message: str) -> StorageError | None:
    """What a query that ended says of its checkpoint's place, where that is one that comes back."""
    sign = next((each for each in _AWAY if each in message), None)
    if isinstance(path, Path) or sign is None:
        return None
    return StorageError(
        f"{path}: {sign.rpartition('.')[2]}: it cannot be reached, or takes nothing now", remedy=REMEDY
    )


def settle_checkpoint(root: Path, below: str | None) -> None:
    """Of a read or view that has none yet. Two homes may have the same place: each checkpoint has a name of its own."""
    if below is None or (root / LOCAL).exists() or (root / ELSEWHERE).exists():
        return
    make_folder(root, 0o700)
    owner = "-".join(root.parts[-2:])
    write_whole(root / ELSEWHERE, f"{below}/{owner}-{uuid.uuid4().hex}".encode())


def remove_checkpoint(root: Path) -> None:
    """Wherever it is. StorageError."""
    found = checkpoint_of(root)
    if isinstance(found, HadoopPath):
        found.remove_all()
        (root / ELSEWHERE).unlink(missing_ok=True)
    else:
        shutil.rmtree(found, ignore_errors=True)


def leave_checkpoint(root: Path) -> None:
    """Of one who needs it no more. Where its place is away, it stays there: nobody has to wait for that."""
    try:
        remove_checkpoint(root)
    except StorageError as error:
        log.warning("a checkpoint that nobody needs any more is left behind: %s", error.message)
