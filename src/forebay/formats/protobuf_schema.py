"""Where a Protobuf schema comes from: a statement's options, or what a registry has; and its messages.

Whatever it was, it becomes one FileDescriptorSet with every import in it. That is what travels to workers,
as `protobuf.descriptor`: they need neither protoc nor the files.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from forebay.errors import DeniedOptionError, MissingOptionError, OptionValueError
from forebay.formats.protobuf_compile import MAX_BYTES, ProtocError, compile_texts
from forebay.formats.protobuf_files import FilesError, add_files, bundled, complete
from forebay.options import dereference

SCHEMA = "protobuf.schema"
SCHEMA_FILE = "protobuf.schema.file"
FOLDER = "protobuf.schema.folder"
DESCRIPTOR = "protobuf.descriptor"
DESCRIPTOR_FILE = "protobuf.descriptor.file"
MESSAGE = "protobuf.message"
SOURCES = (SCHEMA, SCHEMA_FILE, DESCRIPTOR, DESCRIPTOR_FILE)

_INLINE = "protobuf.schema.proto"  # the name that messages of protoc have for a text without a file
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+|option\s+)?["']([^"'\n]+)["']""")


def settled(options: Mapping[str, str]) -> dict[str, str]:
    """The options as workers get them: files read, texts compiled, the message's full name worked out."""
    option = _source(options)
    if option is None:
        return dict(options)
    files = given_files(options)
    message = find_message(files, options)
    kept = {key: text for key, text in options.items() if key not in (*SOURCES, FOLDER)}
    return kept | {DESCRIPTOR: base64.b64encode(files).decode(), MESSAGE: message.full_name}


def given_files(options: Mapping[str, str]) -> bytes:
    """The FileDescriptorSet of the statement's schema. An OptionError says what is wrong with it."""
    option = _source(options)
    if option is None:
        raise MissingOptionError(
            f"format 'protobuf' needs the messages' schema in '{SCHEMA}' or '{SCHEMA_FILE}'",
            option=SCHEMA,
            remedy=f"'{SCHEMA}' = 'syntax = \"proto3\"; message Order {{ int64 id = 1; }}', or "
            f"'{DESCRIPTOR_FILE}' = 'orders.desc', as protoc --include_imports --descriptor_set_out makes it",
        )
    given = dereference(option, options[option])
    folder = _folder(options)
    if option == SCHEMA:
        return _compiled(option, {_INLINE: given}, _INLINE, folder)
    if option == SCHEMA_FILE:
        path = _file(option, given)
        folder = folder or path.parent
        name = _inside(option, folder, path)
        if path.suffix != ".proto":
            raise OptionValueError(
                f"'{option}' is not a .proto file: {given}",
                option=option,
                remedy=f"a compiled one is '{DESCRIPTOR_FILE}'",
            )
        return _compiled(option, {name: _text(option, path)}, name, folder)
    if option == DESCRIPTOR_FILE:
        return _descriptor_set(option, _file(option, given).read_bytes())
    try:
        return _descriptor_set(option, base64.b64decode(given, validate=True))
    except binascii.Error as error:
        raise OptionValueError(f"'{option}' is not base64: {error}", option=option) from None


def registered_files(schema: str, references: Mapping[str, str]) -> bytes:
    """The FileDescriptorSet of a registry's schema, last in it, and of what it refers to, by import name.

    Each is `.proto` text or, as clients of registries also write it, a FileDescriptorProto in base64.
    ValueError if that is no schema.
    """
    texts = {name: text for name, text in references.items() if _serialized(text) is None}
    made = {name: file for name, text in references.items() if (file := _serialized(text)) is not None}
    for name, file in made.items():
        file.name = name  # as it is imported; a client may have written it under another
    try:
        main = _serialized(schema)
        if main is not None:
            for name in texts:
                made |= _by_name(_with(texts, name, made))
            return complete([*made.values(), main])
        return _with({**texts, _INLINE: schema}, _INLINE, made)
    except (ProtocError, FilesError) as error:
        raise ValueError(str(error)) from None


def _with(texts: Mapping[str, str], main: str, made: Mapping[str, FileDescriptorProto]) -> bytes:
    """Compile a text that imports others, some of which are compiled already."""
    imported = {name for text in texts.values() for name in _IMPORT.findall(text)} - texts.keys()
    known = [file for name in imported if (file := made.get(name) or bundled(name)) is not None]
    return compile_texts(texts, main, complete([*made.values(), *known]) if known else b"")


def _by_name(files: bytes) -> dict[str, FileDescriptorProto]:
    return {file.name: file for file in FileDescriptorSet.FromString(files).file}


def find_message(files: bytes, options: Mapping[str, str]) -> Descriptor:
    """The message that the options name, by its full name or the end of it; or the only one there is."""
    try:
        loaded = add_files(files)
    except FilesError as error:
        raise OptionValueError(
            f"that is no Protobuf schema: {error}", option=_source(options) or ""
        ) from None
    everything = {message.full_name: message for file in loaded for message in _messages(file)}
    wanted = options.get(MESSAGE)
    if wanted:
        found = [m for name, m in everything.items() if name == wanted]
        found = found or [m for name, m in everything.items() if name.endswith(f".{wanted}")]
    else:
        imported = {name for file in loaded for name in (part.name for part in file.dependencies)}
        roots = [file for file in loaded if file.name not in imported]
        found = [message for file in roots for message in file.message_types_by_name.values()]
    if len(found) == 1:
        return found[0]
    names = [m.full_name for m in found] or [n for n in everything if not n.startswith("google.protobuf.")]
    if wanted and not found:
        near = difflib.get_close_matches(wanted, names, 1, 0.5)
        listed = f"did you mean '{near[0]}'?" if near else "there are: " + ", ".join(names[:10])
        raise OptionValueError(f"the schema has no message '{wanted}'", option=MESSAGE, remedy=listed)
    if not found:
        raise OptionValueError("the schema has no message", option=_source(options) or "")
    raise MissingOptionError(
        f"the schema has {len(found)} messages{f' {wanted!r}' if wanted else ''}, and the records are one of them",
        option=MESSAGE,
        remedy=f"'{MESSAGE}' = one of " + ", ".join(names[:10]),
    )


def message_at(files: Sequence[FileDescriptor], indexes: Sequence[int]) -> Descriptor | None:
    """The message that a registry's framing points to, in the last of the files; None if it is not there."""
    inside = list(files[-1].message_types_by_name.values())
    found: Descriptor | None = None
    for index in indexes:
        if index >= len(inside):
            return None
        found = inside[index]
        inside = list(found.nested_types)
    return found


def _messages(file: FileDescriptor) -> Iterator[Descriptor]:
    pending = list(file.message_types_by_name.values())
    while pending:
        message = pending.pop()
        if not message.GetOptions().map_entry:
            yield message
        pending += message.nested_types


def _source(options: Mapping[str, str]) -> str | None:
    return next((name for name in SOURCES if options.get(name)), None)


def _folder(options: Mapping[str, str]) -> Path | None:
    given = options.get(FOLDER)
    if not given:
        return None
    path = Path(dereference(FOLDER, given))
    if not path.is_dir():
        raise OptionValueError(f"'{FOLDER}' is not a folder: {given}", option=FOLDER)
    return path


def _file(option: str, given: str) -> Path:
    path = Path(given)
    if not path.is_file():
        raise OptionValueError(
            f"'{option}' is not a file: {given}",
            option=option,
            remedy="a path on the machine where the statement runs; workers do not need it",
        )
    if path.stat().st_size > MAX_BYTES:
        raise OptionValueError(f"'{option}' has more than {MAX_BYTES >> 20} MiB: {given}", option=option)
    return path


def _inside(option: str, folder: Path, path: Path) -> str:
    """The path's name within the folder, links followed; it is refused if it leads out of it."""
    real, root = path.resolve(), folder.resolve()
    if not real.is_relative_to(root):
        raise DeniedOptionError(
            f"'{option}': {path} is not inside of the folder {folder}",
            option=option,
            remedy=f"name the folder that all of them are in: '{FOLDER}' = '…'",
        )
    return real.relative_to(root).as_posix()


def _text(option: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise OptionValueError(f"'{option}': {path} is not UTF-8 text", option=option) from None


def _compiled(option: str, files: dict[str, str], main: str, folder: Path | None) -> bytes:
    """With what the files import from the folder. Other imports are well-known types, or protoc complains."""
    pending = list(files.values()) if folder else []
    while pending and folder is not None:
        for name in _IMPORT.findall(pending.pop()):
            path = folder / name
            if name not in files and path.is_file():
                _inside(option, folder, path)
                files[name] = _text(option, _file(option, str(path)))
                pending.append(files[name])
    try:
        return compile_texts(files, main)
    except ProtocError as error:
        raise OptionValueError(
            f"'{option}' does not compile: {error}",
            option=option,
            remedy=f"imports are looked up in '{FOLDER}'" if "was not found" in str(error) else "",
        ) from None


def _descriptor_set(option: str, serialized: bytes) -> bytes:
    try:
        return complete(FileDescriptorSet.FromString(serialized).file)
    except (DecodeError, FilesError) as error:
        raise OptionValueError(
            f"'{option}' is not a descriptor set: {error}",
            option=option,
            remedy="made by: protoc --include_imports --descriptor_set_out=orders.desc orders.proto",
        ) from None


def _serialized(text: str) -> FileDescriptorProto | None:
    """A FileDescriptorProto, if the text is one in base64: `.proto` text has a space or a semicolon."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (ValueError, DecodeError):
        return None
    return file if file.name or file.message_type else None
