"""Forebay's reader: from Kafka's bytes to Arrow columns. `forebay.native` is where it is used."""

from forebay_native._native import Batch, Decoder, Reader, __version__

__all__ = ["Batch", "Decoder", "Reader", "__version__"]
