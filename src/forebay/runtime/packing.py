"""The driver's environment as one archive that executors unpack: Forebay, its native part, and the libraries that tasks use.

It holds no interpreter and no Spark: both are on the machines of a cluster already. So it needs there a Python of the same minor
version, on the same kind of machine, and a Spark of the same version.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

from forebay.errors import ArchiveError
from forebay.source import versions

ABOUT = "forebay-env.json"  # the first file of the archive: what it was made of
LEVEL = 1  # of compression: most of it are libraries, which the slower levels make a tenth smaller in four times the time
FROM_SPARK = frozenset({"pyspark", "py4j"})  # the cluster's Spark brings these
OF_THE_DRIVER = frozenset(
    {"polars", "polars-runtime-32", "polars-runtime-64", "typer", "prompt-toolkit", "pip"}
)
LEFT_OUT = re.compile(r"(^|/)(tests?|include)/|\.(pyi|pxd|h|hpp|a|lib)$")
CONNECTORS = "forebay.connectors"

Progress = Callable[[int, int], None]  # bytes that are packed, and of how many


class PackedFile(NamedTuple):
    """A file, and its name in the archive."""

    path: Path
    name: str


class Packed(NamedTuple):
    """What is in an archive that was made."""

    path: Path
    files: int
    unpacked: int  # bytes
    packages: list[str]


def pack(
    into: Path,
    include: Iterable[str] = (),
    progress: Progress = lambda done, total: None,
    *,
    for_driver: bool = False,
) -> Packed:
    """Make the archive. It is there as a whole or not at all.

    `include`: packages beside those that tasks need. `for_driver`: what the driver needs is in, too.
    """
    packages = _needed(include, for_driver=for_driver)
    entries = sorted(_entries(packages), key=lambda entry: entry.name)
    total = sum(entry.path.stat().st_size for entry in entries)
    half = into.with_name(f".{into.name}.{os.getpid()}")
    try:
        with half.open("wb") as raw, gzip.GzipFile("", "wb", LEVEL, raw, 0) as zipped:
            _write(zipped, entries, lambda done: progress(done, total))
        half.replace(into)
    except OSError as error:
        raise ArchiveError(
            f"{into} cannot be written: {error.strerror or error}",
            remedy="name another place: forebay pack -o FILE",
        ) from None
    finally:
        half.unlink(missing_ok=True)
    return Packed(into, len(entries), total, sorted(packages))


def check(archive: str | Path) -> None:
    """ArchiveError if an archive is missing, is none of ours, or was made of something else than this process runs.

    One that is not on this machine (hdfs://, s3a://, …) is not looked at: the workers look.
    """
    if "://" in str(archive):
        return
    made_of, here = about(Path(archive)), _about()
    differ = [name for name, value in here.items() if made_of.get(name) != value]
    if differ:
        listed = "; ".join(
            f"{name} {made_of.get(name, 'unknown')}, here it is {here[name]}" for name in differ
        )
        raise ArchiveError(f"{archive} was packed with {listed}")


def about(archive: Path) -> dict[str, str]:
    """What an archive was made of."""
    try:
        with tarfile.open(archive) as opened:
            first = opened.next()
            said = opened.extractfile(first) if first is not None and first.name == ABOUT else None
            if said is not None:
                return dict(json.load(said))
    except FileNotFoundError:
        raise ArchiveError(f"there is no archive {archive}", remedy=f"forebay pack -o {archive}") from None
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        raise ArchiveError(f"{archive} cannot be read: {error}") from None
    raise ArchiveError(f"{archive} was not made by forebay pack")


def _about() -> dict[str, str]:
    return {**versions.own(), "platform": sysconfig.get_platform()}


def _write(
    into: IO[bytes] | gzip.GzipFile, entries: list[PackedFile], progress: Callable[[int], None]
) -> None:
    with tarfile.open(fileobj=into, mode="w", format=tarfile.GNU_FORMAT) as archive:
        text = json.dumps(_about(), indent=2).encode()
        first = tarfile.TarInfo(ABOUT)
        first.size = len(text)
        archive.addfile(first, io.BytesIO(text))
        done = 0
        for entry in entries:
            # Who made it and may write it is of no concern there; the time is: compiled code is known by it.
            info = archive.gettarinfo(str(entry.path.resolve()), entry.name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mode = 0o755 if info.mode & 0o100 else 0o644
            with entry.path.open("rb") as content:
                archive.addfile(info, content)
            done += info.size
            progress(done)


def _needed(include: Iterable[str], *, for_driver: bool) -> dict[str, metadata.Distribution]:
    """Forebay, its connectors, what they need, and what that needs: by name."""
    found: dict[str, metadata.Distribution] = {}
    connectors = [point.dist.name for point in metadata.entry_points(group=CONNECTORS) if point.dist]
    asked = {_normal(name) for name in include}
    left = ["forebay", versions.NATIVE, *connectors, *asked]
    while left:
        name = _normal(left.pop())
        left_out = OF_THE_DRIVER if not for_driver else frozenset({"pip"})
        if name in found or name in FROM_SPARK or (name in left_out and name not in asked):
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in asked:
                raise ArchiveError(
                    f"there is no package '{name}' in this environment", remedy="pip list says what there is"
                ) from None
            continue  # the native part, or what another system would need
        left += _requirements(found[name])
    return found


def _requirements(distribution: metadata.Distribution) -> Iterator[str]:
    """Names. What is needed for an extra alone is in where it is installed: whoever installed it wanted it."""
    for each in distribution.requires or ():
        name, _, marker = each.partition(";")
        if "extra" not in marker and (match := re.match(r"[A-Za-z0-9._-]+", name)):
            yield match[0]
            yield from _of_extras(match[0], name)


def _of_extras(name: str, requirement: str) -> Iterator[str]:
    """`confluent-kafka[schemaregistry]` needs more than `confluent-kafka`."""
    extras = re.search(r"\[([^\]]*)\]", requirement)
    if extras is None:
        return
    try:
        listed = metadata.distribution(name).requires or ()
    except metadata.PackageNotFoundError:
        return
    for extra in extras[1].split(","):
        for each in listed:
            if re.search(rf"extra\s*==\s*['\"]{re.escape(extra.strip())}['\"]", each):
                yield re.match(r"[A-Za-z0-9._-]+", each)[0]  # type: ignore[index]


def _entries(packages: dict[str, metadata.Distribution]) -> Iterator[PackedFile]:
    seen: set[str] = set()
    for name, distribution in packages.items():
        found = _installed(distribution)
        if name == "forebay":  # a checkout that is installed for editing lists none of its files
            found = [*found, *_tree(versions.PACKAGE)]
        for entry in found:
            if entry.name not in seen and entry.path.is_file() and not LEFT_OUT.search(entry.name):
                seen.add(entry.name)
                yield entry


def _installed(distribution: metadata.Distribution) -> list[PackedFile]:
    """Its files in site-packages. Commands are left out: their first line names an interpreter that is not there."""
    listed = [each.as_posix() for each in distribution.files or () if each.suffix != ".pth"]
    return [
        PackedFile(Path(str(distribution.locate_file(name))), name)
        for name in listed
        if not name.startswith(("..", "/"))
    ]


def _tree(package: Path) -> Iterator[PackedFile]:
    for path in package.rglob("*"):
        if path.is_file():
            yield PackedFile(path, f"{package.name}/{path.relative_to(package).as_posix()}")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
