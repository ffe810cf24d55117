"""The offsets that are done beyond the committed one, as text in the commit's metadata.

A restart then repeats only what was not done. The broker takes 4096 bytes (`offset.metadata.max.bytes`): what
does not fit is left out from the far end, so that a restart repeats more, never less. The shortest of four forms
is written: runs or a bitmap, each plain or compressed. A checksum over text and offset makes sure that what was
damaged, or belongs to another commit, is not believed. It keeps nobody from writing a text of his own, though: whoever
may commit for the group may. So what a text unpacks to is bounded, and nothing beyond the bounds is ever written.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

LIMIT = 4096
VERSION = "fb1"
MOST = 1_000_000  # offsets that one text may name
BODY = 16 * LIMIT  # bytes of runs or bitmap that one text may unpack to
OFFSETS = 1 << 63  # Kafka's offsets are below this


class BadMetadataError(ValueError):
    """Not ours, of another version, or damaged."""


class Completed(Collection[int]):
    """Offsets, kept as runs: memory follows the length of the text, and not the number of offsets that it names."""

    __slots__ = ("_count", "_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # exclusive
        self._count = 0

    def add(self, start: int, count: int) -> None:
        """A run behind all others. BadMetadataError if it is none, or too much."""
        if count < 1 or start + count > OFFSETS:
            raise BadMetadataError("it names offsets that do not exist")
        self._count += count
        if self._count > MOST:
            raise BadMetadataError(f"it names more than {MOST:,} offsets")
        self._starts.append(start)
        self._ends.append(start + count)

    @property
    def end(self) -> int:
        """The offset behind the last one; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __iter__(self) -> Iterator[int]:
        for start, end in zip(self._starts, self._ends, strict=True):
            yield from range(start, end)

    def __len__(self) -> int:
        return self._count


def encode(frontier: int, offsets: Sequence[int], limit: int = LIMIT) -> tuple[str, int]:
    """The text, and how many of the offsets, which are ascending and above the frontier, it holds."""
    if not offsets:
        return "", 0
    offsets = offsets[:MOST]
    text = _text(frontier, offsets)
    if text is not None and len(text) <= limit:
        return text, len(offsets)
    fits, low, high = "", 0, len(offsets) - 1
    while low < high:
        middle = (low + high + 1) // 2
        text = _text(frontier, offsets[:middle])
        if text is not None and len(text) <= limit:
            fits, low = text, middle
        else:
            high = middle - 1
    return fits, low


def decode(frontier: int, text: str) -> Completed:
    """The offsets, all above the frontier. BadMetadataError if the text is not to be believed."""
    if not text:
        return Completed()
    version, _, rest = text.partition(":")
    if version != VERSION or not rest:
        raise BadMetadataError(f"it does not begin with '{VERSION}:'")
    try:
        data = b64decode(rest[1:], validate=True)
    except (binascii.Error, ValueError):
        raise BadMetadataError("it is not base64") from None
    if len(data) < 4 or data[:4] != _checksum(frontier, rest[0], data[4:]):
        raise BadMetadataError("its checksum is wrong")
    form, body = rest[0], data[4:]
    try:
        if form in "RB":
            body = _unpacked(body)
    except zlib.error as error:
        raise BadMetadataError(f"it does not decode: {error}") from None
    if len(body) > BODY:
        raise BadMetadataError(f"it unpacks to more than {BODY:,} bytes")
    return _from_runs(frontier, body) if form in "rR" else _from_bitmap(frontier, body)


def _unpacked(body: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(body, BODY + 1)
    if len(found) <= BODY and not unpacking.eof:
        raise BadMetadataError("it does not decode: it is cut off")
    return found


def _text(frontier: int, offsets: Sequence[int]) -> str | None:
    """The shortest form; None if each is longer than what is read back."""
    forms = {"r": _runs(frontier, offsets)}
    if offsets[-1] - frontier < 8 * BODY:
        forms["b"] = _bitmap(frontier, offsets)
    forms = {form: body for form, body in forms.items() if len(body) <= BODY}
    if not forms:
        return None
    forms |= {form.upper(): zlib.compress(body, 6) for form, body in forms.items()}
    form, body = min(forms.items(), key=lambda item: len(item[1]))
    return f"{VERSION}:{form}" + b64encode(_checksum(frontier, form, body) + body).decode()


def _checksum(frontier: int, form: str, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(b"%d%s" % (frontier, form.encode()))).to_bytes(4, "big")


def _bitmap(frontier: int, offsets: Sequence[int]) -> bytes:
    bits = bytearray((offsets[-1] - frontier) // 8 + 1)
    for offset in offsets:
        at = offset - frontier
        bits[at >> 3] |= 1 << (at & 7)
    return bytes(bits)


def _from_bitmap(frontier: int, body: bytes) -> Completed:
    found, start = Completed(), None
    for at, byte in enumerate(body):
        for bit in range(8):
            offset = frontier + at * 8 + bit
            if byte >> bit & 1:
                start = offset if start is None else start
            elif start is not None:
                found.add(start, offset - start)
                start = None
    if start is not None:
        found.add(start, frontier + 8 * len(body) - start)
    return found


def _runs(frontier: int, offsets: Sequence[int]) -> bytes:
    """Alternately how many are missing and how many are there, each as a varint."""
    out, at, index = bytearray(), frontier, 0
    while index < len(offsets):
        first = last = offsets[index]
        index += 1
        while index < len(offsets) and offsets[index] == last + 1:
            last += 1
            index += 1
        _varint(out, first - at)
        _varint(out, last - first + 1)
        at = last + 1
    return bytes(out)


def _varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _from_runs(frontier: int, body: bytes) -> Completed:
    numbers, number, shift = [], 0, 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        elif shift > 63:
            raise BadMetadataError("it names offsets that do not exist")
    if shift or len(numbers) % 2:
        raise BadMetadataError("it does not decode: it is cut off")
    found, at = Completed(), frontier
    for missing, there in zip(numbers[::2], numbers[1::2], strict=True):
        found.add(at + missing, there)
        at += missing + there
    return found
