"""Things that many tests need one of, with what does not matter to them filled in."""

from __future__ import annotations

from typing import Any

from forebay.deadletter.letter import Letter


def a_letter(value: bytes | None = b"{", **more: Any) -> Letter:
    """A dead letter of the record at t/0/0, without a key, a time or headers."""
    given = {
        "source": "s", "topic": "t", "partition": 0, "offset": 0, "timestamp_ms": None, "key": None, "headers": (),
        "kind": "Other", "message": "m", "failed_at_ms": 0, "size": len(value or b""),
    }  # fmt: skip
    return Letter(value=value, **{**given, **more})
