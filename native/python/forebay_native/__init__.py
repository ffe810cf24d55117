"""Forebay's reader: from Kafka's bytes to Arrow columns. `forebay.native` is where it is used."""

from forebay_native._native import REFUSALS, UNSUPPORTED, Batch, Decoder, Letters, Reader, __version__, costs

__all__ = ["REFUSALS", "UNSUPPORTED", "Batch", "Decoder", "Letters", "Reader", "__version__", "costs"]
