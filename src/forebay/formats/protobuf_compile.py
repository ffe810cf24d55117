"""`.proto` texts to a descriptor set, by protoc, in a process and a folder of its own.

protoc sees the files that it is given and the well-known types, nothing else of this machine. It ends with
the process when a text brings it down.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

TIMEOUT_S = 60.0
MAX_BYTES = 4 << 20
"""Of all texts together: more than any schema has, little enough to be compiled in seconds."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*[.]proto")
_SHOWN = 5  # complaints: what follows is mostly their consequence
_NOISE = re.compile(r"WARNING: |[IW][0-9]{4} |.*: warning: ")


class ProtocError(Exception):
    """What protoc says, each complaint as `file:line:column: reason`."""


def compile_texts(files: Mapping[str, str], main: str, compiled: bytes = b"") -> bytes:
    """A FileDescriptorSet of `main` and all that it imports, `main` last.

    `compiled` is a FileDescriptorSet that imports are looked up in, too.
    """
    for name in files:
        if not _NAME.fullmatch(name):
            raise ProtocError(f"{name!r} is not the name of a .proto file: letters, digits and _ + - . /")
    if sum(map(len, files.values())) > MAX_BYTES:
        raise ProtocError(f"the texts have more than {MAX_BYTES >> 20} MiB")
    return _compile(tuple(sorted(files.items())), main, compiled)


@lru_cache(maxsize=64)
def _compile(files: tuple[tuple[str, str], ...], main: str, compiled: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="forebay-protoc-") as made:
        folder, out, known = Path(made, "in"), Path(made, "out"), Path(made, "known")
        for name, text in files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        bundled = str(resources.files("grpc_tools") / "_proto")
        arguments = [f"-I{folder}", f"-I{bundled}", "--include_imports", f"--descriptor_set_out={out}"]
        if compiled:
            known.write_bytes(compiled)
            arguments.append(f"--descriptor_set_in={known}")
        # -P: what was given is not where Python looks for modules.
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments, main]
        try:
            done = subprocess.run(command, cwd=made, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ProtocError(f"protoc did not end within {TIMEOUT_S:.0f} s") from None
        if done.returncode != 0 or not out.exists():
            said = done.stderr.decode("utf-8", "replace").replace(f"{folder}/", "")
            raise ProtocError(_complaints(said) or f"protoc ended with {done.returncode}")
        return out.read_bytes()


def _complaints(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _NOISE.match(line)]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more
