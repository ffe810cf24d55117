"""Sets of compiled `.proto` files: complete, in the order of their imports, and loaded."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

MAX_FILES = 1000

_GOOGLE: tuple[str, ...] = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context")
_GOOGLE += ("struct", "timestamp", "type", "wrappers")
_CONFLUENT = "confluent_kafka.schema_registry.confluent"
_BUNDLED = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in _GOOGLE}
_BUNDLED |= {
    "confluent/meta.proto": f"{_CONFLUENT}.meta_pb2",
    "confluent/type/decimal.proto": f"{_CONFLUENT}.type.decimal_pb2",
}


class FilesError(Exception):
    """The files are not a set that can be loaded."""


def bundled(name: str) -> FileDescriptorProto | None:
    """A well-known type's file, or one that Confluent's clients expect of every registry."""
    if name not in _BUNDLED:
        return None
    file = FileDescriptorProto()
    importlib.import_module(_BUNDLED[name]).DESCRIPTOR.CopyToProto(file)
    return file


def complete(files: Iterable[FileDescriptorProto]) -> bytes:
    """All of them behind what they import, in a FileDescriptorSet; the last one given stays last.

    What is not there is taken from `bundled()`; FilesError if it is not there either.
    """
    known = {file.name: file for file in files}
    if not known or len(known) > MAX_FILES:
        raise FilesError(f"{len(known)} files")
    done: dict[str, FileDescriptorProto] = {}
    try:
        for name in list(known):
            _visit(name, known, done, ())
    except RecursionError:
        raise FilesError("the imports are nested too deep") from None
    serialized: bytes = FileDescriptorSet(file=done.values()).SerializeToString()
    return serialized


def _visit(
    name: str,
    known: dict[str, FileDescriptorProto],
    done: dict[str, FileDescriptorProto],
    above: tuple[str, ...],
) -> None:
    if name in done:
        return
    if name in above:
        raise FilesError(f"{name} imports itself")
    file = known.get(name) or bundled(name)
    if file is None:
        raise FilesError(f"{above[-1]} imports {name}, which is not among them (protoc --include_imports)")
    for dependency in file.dependency:
        _visit(dependency, known, done, (*above, name))
    done[name] = file


def add_files(files: bytes) -> list[FileDescriptor]:
    """Load a FileDescriptorSet into a pool of its own: names of other sources mean nothing there."""
    pool = DescriptorPool()
    try:
        loaded = list(_added(pool, FileDescriptorSet.FromString(files).file))
    except (DecodeError, TypeError, ValueError, KeyError) as error:
        raise FilesError(str(error)) from None
    if not loaded:
        raise FilesError("there is no file in it")
    return loaded


def _added(pool: DescriptorPool, files: Iterable[FileDescriptorProto]) -> Iterator[FileDescriptor]:
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
        yield pool.FindFileByName(file.name)
