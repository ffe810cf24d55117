"""Whose table it is, where it is not in a home: when a home was thought to be lost and comes back, another may have taken it over.

A lock or a lease keeps two drivers apart that run at the same time. The owner is for those that run one after the other: the home
that was followed has a checkpoint from before, and would write rows that are there already.
"""

from __future__ import annotations

import json
import socket
import uuid
from pathlib import Path

from forebay.errors import CheckpointError
from forebay.files import make_folder, write_whole
from forebay.object_path import TablePath
from forebay.views.paths import OWN, ViewPaths


def settle_owner(view: str, paths: ViewPaths) -> None:
    """With the lock held: this home owns the table from now on, if nobody did or the view is being adopted. CheckpointError."""
    home = paths.root.parent.parent
    file, mine = paths.table / OWN / "owner.json", home_id(home)
    known = _read(file)
    if known is not None and known["id"] == mine:
        return
    if known is not None and not paths.adopting.exists():
        raise CheckpointError(
            f"the table of view '{view}' at {paths.table} was taken over by the home {known['home']} on {known['machine']}",
            remedy="that home goes on with it, and this one can be removed; what it had written is in the table",
        )
    if isinstance(file, Path):
        make_folder(file.parent)
    file.write_bytes(json.dumps({"id": mine, "home": str(home), "machine": socket.gethostname()}).encode())


def home_id(home: Path) -> str:
    """The same for as long as there is this home, wherever it is moved."""
    file = home / "id"
    if not file.exists():
        make_folder(home, 0o700)
        write_whole(file, uuid.uuid4().hex.encode())
    return file.read_text()


def _read(file: TablePath) -> dict[str, str] | None:
    try:
        found: dict[str, str] = json.loads(file.read_bytes())
        return found
    except FileNotFoundError:
        return None
