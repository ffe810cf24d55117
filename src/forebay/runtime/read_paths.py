"""Where a shared read keeps what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forebay.runtime.checkpoint_places import CheckpointPath, checkpoint_of
from forebay.source.flow_folder import ALL, view_read
from forebay.views.paths import ViewPaths


@dataclass(frozen=True)
class ReadPaths:
    """Where a shared read keeps what. Everything of it is below one directory."""

    root: Path

    @property
    def read(self) -> str:
        """Its name among the reads of its source."""
        return ALL if self.root.name == "read" else view_read(self.root.parent.name, shared=True)

    @property
    def checkpoint(self) -> CheckpointPath:
        return checkpoint_of(self.root)

    @property
    def drain(self) -> Path:
        return self.root / "drain"

    @property
    def state(self) -> Path:
        return self.root / "views.json"

    @property
    def health(self) -> Path:
        """How partitions fared, where the error policy has limits."""
        return self.root / "health"

    @property
    def event_times(self) -> Path:
        """The greatest event time that was read of each partition."""
        return self.root / "event-times.json"

    @property
    def keys(self) -> Path:
        """The marks of keys that have watermarks of their own."""
        return self.root / "keys.arrow"

    @property
    def watermark(self) -> Path:
        """The source's watermark as of the last look, by the process that plans."""
        return self.root / "watermark.json"

    @property
    def share(self) -> Path:
        """What this process is assigned of a group that is shared."""
        return self.root / "group"

    @property
    def claimed(self) -> Path:
        """The batch that tables may have, where the group is shared."""
        return self.root / "claimed"

    @property
    def start(self) -> Path:
        """Where the first batch starts. Spark does not keep it: a first batch that is repeated asks again."""
        return self.root / "start.json"

    @property
    def accounts(self) -> Path:
        """What became of bad records in batches that a view of its has not counted yet."""
        return self.root / "accounts"


def of_source(home: Path, source: str) -> ReadPaths:
    """Of the read for all views of a source."""
    return ReadPaths(home / "sources" / source / "read")


def of_view(view: ViewPaths) -> ReadPaths:
    """Of the read of a view that is far from where the others are."""
    return ReadPaths(view.root / "alone")
