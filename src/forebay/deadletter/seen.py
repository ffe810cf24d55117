"""Which letters were met before, in little memory: a bit an offset, in small blocks."""

from __future__ import annotations

from forebay.deadletter.identity import Identity

_BLOCK = 512  # offsets; with one letter in ten records a block of them takes about 200 bytes in all


class Seen:
    """A set of letters. A million among ten million records take about 4 MB.

    Where a letter does not know its topic's id, its mark tells the record from another one at its place. That takes
    about 70 MB a million.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int, str], dict[int, int]] = {}
        self._marked: set[int] = (
            set()
        )  # hashes of 64 bits: of a million, two are the same once in thirty million times

    def add(self, identity: Identity, mark: str = "") -> bool:
        """True if it was not there. `mark` is what `mark_of` says of the letter."""
        topic, partition, offset, id = identity
        marked = hash((topic, partition, offset, mark))
        if marked in self._marked:  # also one that is written again by a version that knows the id
            return False
        if not id:
            self._marked.add(marked)
            return True
        blocks = self._blocks.setdefault((topic, partition, id), {})
        number, bit = offset // _BLOCK, 1 << (offset % _BLOCK)
        before = blocks.get(number, 0)
        if before & bit:
            return False
        blocks[number] = before | bit
        return True
