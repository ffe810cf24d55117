"""Forebay's reader: from Kafka's bytes to Arrow columns. `forebay.native` is where it is used."""

from pathlib import Path

from forebay_native._native import Batch, Decoder, Reader, __version__, librdkafka_version

__all__ = ["Batch", "Decoder", "Reader", "__version__", "allocator", "librdkafka_version"]


def allocator() -> str | None:
    """The memory allocator to preload into processes that read much, where it was built."""
    library = Path(__file__).with_name("libforebay_malloc.so")
    return str(library) if library.exists() else None
