"""Class-data archives: the second start of a JVM takes half the time of the first.

The first JVM that stops by itself leaves its loaded classes behind in a file (which makes that one
stop a few seconds longer), all later ones map the file. Java checks on its own that an archive fits
the jars, and starts without it if it does not.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from pathlib import Path

from forebay.jvm.java import Java

MAGIC = (0xF00BABA8).to_bytes(4, "little")  # how the header of such an archive begins
ABANDONED_AFTER_S = 600.0


class ClassArchive:
    """The archive of one program under one Java."""

    def __init__(self, folder: Path, java: Java) -> None:
        self._folder = folder
        key = hashlib.sha256(f"{java.path}\n{java.banner}".encode()).hexdigest()[:12]
        self._name = f"classes-{key}"
        self.path = folder / f"{self._name}.jsa"

    def flags(self) -> list[str]:
        """What to tell Java: use the archive, or write one when it ends."""
        self._adopt()
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"]
        # A name of its own for each JVM: several may be the first at once.
        return [f"-XX:ArchiveClassesAtExit={self._folder / f'{self._name}.{uuid.uuid4().hex[:8]}.draft'}"]

    def _adopt(self) -> None:
        """Take over what an earlier JVM wrote. Its header comes last, so a draft that has one is whole."""
        for draft in self._folder.glob(f"{self._name}.*.draft"):
            try:
                with draft.open("rb") as file:
                    whole = file.read(len(MAGIC)) == MAGIC
                if whole and not self.path.exists():
                    draft.replace(self.path)
                elif whole or time.time() - draft.stat().st_mtime > ABANDONED_AFTER_S:
                    draft.unlink()
            except FileNotFoundError:
                continue  # another process was first
