"""Which letters have the same fault: what differs from record to record is taken out of a message."""

from __future__ import annotations

import hashlib
import re

from forebay.hiding import placeholders

LONGEST = 300  # characters of a message that tell groups apart

_INDEX = re.compile(r"\[(?:\d+|'(?:[^'\\]|\\.)*')\]")


def pattern_of(message: str) -> str:
    """The message with placeholders for texts, ids, times and numbers, on one line, and not all of a long one."""
    return " ".join(placeholders(message).split())[:LONGEST].rstrip()


def field_of(path: str | None) -> str | None:
    """The path of a field, whichever item of a list or a map it was: `items[*].price`."""
    return None if path is None else _INDEX.sub("[*]", path)


def group_id(owner: str, kind: str, field: str | None, pattern: str) -> str:
    """The same for the same fault, in every index of every home."""
    text = "\x00".join((owner, kind, field or "", pattern))
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]
