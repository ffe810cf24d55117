"""Forebay's reader: from Kafka's bytes to Arrow columns. `forebay.native` is where it is used."""

from forebay_native._native import (
    REFUSALS,
    UNSUPPORTED,
    BadValue,
    Batch,
    Decoded,
    Decoder,
    Event,
    Letters,
    Part,
    Reader,
    Record,
    Rejected,
    Stretch,
    Wanted,
    Watermarks,
    __version__,
)
from forebay_native.errors import BrokerError, NotNativeError

__all__ = [
    "REFUSALS",
    "UNSUPPORTED",
    "BadValue",
    "Batch",
    "BrokerError",
    "Decoded",
    "Decoder",
    "Event",
    "Letters",
    "NotNativeError",
    "Part",
    "Reader",
    "Record",
    "Rejected",
    "Stretch",
    "Wanted",
    "Watermarks",
    "__version__",
]
