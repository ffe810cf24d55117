"""Class-data archives: the second start of a JVM takes half the time of the first.

The first JVM that stops by itself leaves its loaded classes behind in a file (which makes that one
stop a few seconds longer), all later ones map the file. Java checks on its own that an archive fits
the jars, and starts without it if it does not.
"""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

from forebay.devstack.java import Java


class ClassArchive:
    """The archive of one program under one Java."""

    def __init__(self, home: Path, java: Java) -> None:
        key = hashlib.sha256(f"{java.path}\n{java.banner}".encode()).hexdigest()[:12]
        self.path = home / f"classes-{key}.jsa"
        # A name of its own for each JVM: several may be the first at once.
        self.draft = home / f"classes-{key}.{uuid.uuid4().hex[:8]}.draft"

    def flags(self) -> list[str]:
        """What to tell Java: use the archive, or write one when it ends."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"]
        return [f"-XX:ArchiveClassesAtExit={self.draft}"]

    def keep(self, clean_exit: bool) -> None:
        """Take over what the JVM wrote, after it has ended; a JVM that was killed wrote a torso."""
        keep_draft(self.draft, clean_exit)


def keep_draft(draft: Path, clean_exit: bool) -> None:
    """The same for a JVM that another process started: the draft's name says where it goes."""
    if draft.suffix != ".draft" or not draft.is_file():
        return
    if clean_exit:
        draft.replace(draft.with_name(f"{draft.name.split('.')[0]}.jsa"))
    else:
        draft.unlink()
