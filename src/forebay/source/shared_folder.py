"""Whether a task sees the folder that the driver means.

On another machine the same path may be missing, or be another folder: a file that is written there is lost for the table, though
the task has written it. So a task looks for what the driver has put there before anything else.
"""

from __future__ import annotations

import socket
from pathlib import Path

from forebay.errors import NotSharedError

LOG = "_delta_log"


def check_seen(table: str | Path) -> None:
    """A NotSharedError where the folder of a table is not the driver's. Of a URL nothing is said."""
    if "://" not in str(table) and not (Path(table) / LOG).exists():
        raise NotSharedError(f"the worker on {socket.gethostname()} does not see the table at {table}")
