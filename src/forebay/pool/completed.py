"""The offsets that are done beyond the committed one, as text in the commit's metadata.

A restart then repeats only what was not done. The broker takes 4096 bytes (`offset.metadata.max.bytes`): what
does not fit is left out from the far end, so that a restart repeats more, never less. The shortest of four forms
is written: runs or a bitmap, each plain or compressed. A checksum over text and offset makes sure that what was
damaged, or belongs to another commit, is not believed.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence

LIMIT = 4096
VERSION = "fb1"
MOST = 1_000_000  # offsets in one metadata: more were never written by us


class BadMetadataError(ValueError):
    """Not ours, of another version, or damaged."""


def encode(frontier: int, offsets: Sequence[int], limit: int = LIMIT) -> tuple[str, int]:
    """The text, and how many of the offsets, which are ascending and above the frontier, it holds."""
    if not offsets:
        return "", 0
    text = _text(frontier, offsets)
    if len(text) <= limit:
        return text, len(offsets)
    fits, low, high = "", 0, len(offsets) - 1
    while low < high:
        middle = (low + high + 1) // 2
        text = _text(frontier, offsets[:middle])
        if len(text) <= limit:
            fits, low = text, middle
        else:
            high = middle - 1
    return fits, low


def decode(frontier: int, text: str) -> frozenset[int]:
    """The offsets, all above the frontier. BadMetadataError if the text is not to be believed."""
    if not text:
        return frozenset()
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
            body = zlib.decompress(body)
        found = _from_runs(frontier, body) if form in "rR" else _from_bitmap(frontier, body)
    except (zlib.error, IndexError) as error:
        raise BadMetadataError(f"it does not decode: {error}") from None
    return found


def _text(frontier: int, offsets: Sequence[int]) -> str:
    forms = {"r": _runs(frontier, offsets)}
    if (
        offsets[-1] - frontier <= 8 * LIMIT * 16
    ):  # a bitmap of a wide range is of no use, and is large to make
        forms["b"] = _bitmap(frontier, offsets)
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


def _from_bitmap(frontier: int, body: bytes) -> frozenset[int]:
    return frozenset(
        frontier + at * 8 + bit for at, byte in enumerate(body) if byte for bit in range(8) if byte >> bit & 1
    )


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


def _from_runs(frontier: int, body: bytes) -> frozenset[int]:
    found: set[int] = set()
    numbers, number, shift = [], 0, 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    at = frontier
    for missing, there in zip(numbers[::2], numbers[1::2], strict=True):
        at += missing
        if there > MOST - len(found):
            raise BadMetadataError(f"it names more than {MOST:,} offsets")
        found.update(range(at, at + there))
        at += there
    return frozenset(found)
