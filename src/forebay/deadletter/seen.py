"""Which identities were met before, in little memory: a bit an offset, in small blocks."""

from __future__ import annotations

from forebay.deadletter.outcomes import Identity

_BLOCK = 512  # offsets; with one letter in ten records a block of them takes about 200 bytes in all


class Seen:
    """A set of offsets by partition. A million letters among ten million records take about 4 MB."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], dict[int, int]] = {}

    def add(self, identity: Identity) -> bool:
        """True if it was not there."""
        topic, partition, offset = identity
        blocks = self._blocks.setdefault((topic, partition), {})
        number, bit = offset // _BLOCK, 1 << (offset % _BLOCK)
        before = blocks.get(number, 0)
        if before & bit:
            return False
        blocks[number] = before | bit
        return True
