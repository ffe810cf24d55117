"""The native decoder behind the registry's frame: it is taught each schema id when it first meets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from forebay.formats.contract import BadRecord, Decoded, Kind
from forebay.formats.framed import FramedDecoder
from forebay.native import native


def quickest(plain: FramedDecoder) -> FramedDecoder | NativeFramedDecoder:
    """The native decoder, where it is there and knows the columns; else the plain one."""
    try:
        return NativeFramedDecoder(plain)
    except (AttributeError, ValueError):
        return plain


class NativeFramedDecoder:
    """The same rows and refusals as the plain one that teaches it."""

    def __init__(self, plain: FramedDecoder) -> None:
        module: Any = native()
        if "\0" in str(plain.schema):
            raise ValueError("a NUL ends a name in Arrow's C interface")
        self.schema = plain.schema
        self._plain = plain
        self._native = module.Decoder(plain.format, plain.schema, {"framed": "true"})

    def __reduce__(self) -> tuple[Any, ...]:
        return quickest, (self._plain,)

    def check(self) -> None:
        self._plain.check()

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        given = list(values)
        batch, found = self._native.decode(given)
        while (wanted := self._native.wanted) is not None:
            # Nothing of these values was kept: from the beginning, now that one more id is known.
            self._native.learn(wanted, *self._plain.lesson(wanted).native)
            batch, found = self._native.decode(given)
        bad = [BadRecord(index, Kind(kind), message) for index, kind, message in found]
        refused = {record.index for record in bad}
        good = [index for index in range(len(given)) if index not in refused] if bad else None
        return Decoded(pa.record_batch(batch), good, bad)
