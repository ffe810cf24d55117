"""What `forebay doctor` looks at. A check says what it found in one line, and what to do where that is not enough."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from forebay import patience
from forebay.errors import ForebayError
from forebay.patience import PATIENCE_S

if TYPE_CHECKING:
    from forebay.options import Options
    from forebay.project import Project

CheckState = Literal["ok", "warn", "fail"]
LIBRARIES = ("pyspark", "confluent-kafka", "deltalake", "pyarrow")
CLOCK_S = 5.0  # windows and retention bear so much; a registry's Date has whole seconds
LOW_BYTES, TOO_LOW_BYTES = 2 << 30, 200 << 20


@dataclass(frozen=True)
class Finding:
    """A line of the report."""

    check: str
    state: CheckState
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Where:
    """What is to be looked at. `brokers_named`, `registry`: said by somebody, and not only a default."""

    options: Options
    brokers_named: bool
    registry: str | None
    home: Path
    cache: Path


def findings(where: Where, project: Project | None) -> Iterator[Finding]:
    """All of them. Those that ask somebody run side by side, so that two who are away take five seconds, not ten."""
    asking: list[Callable[[], Finding]] = [
        lambda: brokers(where), lambda: registry(where.registry), lambda: clock(where)
    ]  # fmt: skip
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(each) for each in asking]
        yield python()
        yield java()
        yield from libraries()
        yield native()
        yield project_file(project)
        yield disk("disk of home", where.home)
        yield disk("disk of cache", where.cache)
        yield from (_awaited(answer, where) for answer in answers)


def _awaited(answer: Future[Finding], where: Where) -> Finding:
    with patience.waiting():
        registry = f" and the registry at {where.registry}" if where.registry else ""
        patience.say(f"reaching brokers at {where.options['bootstrap.servers']}{registry}")
        return answer.result()


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"{version} at {sys.executable}")


def java() -> Finding:
    from forebay.jvm.java import find_java

    try:
        found = find_java()
    except ForebayError as error:
        return Finding("java", "fail", error.message, error.remedy)
    return Finding("java", "ok", f"{found.major} at {found.path}")


def libraries() -> Iterator[Finding]:
    """The versions that are installed, against those that Forebay asks for."""
    wanted = {}
    for line in metadata.requires("forebay") or ():
        name = re.match(r"[\w.-]+", line)
        if name and "extra ==" not in line:
            wanted[name[0]] = re.findall(r"(>=|<)\s*([\d.]+)", line.partition(";")[0])
    for library in LIBRARIES:
        bounds = wanted.get(library, [])
        text = library + ",".join(f"{sign}{version}" for sign, version in bounds)
        try:
            version = metadata.version(library)
        except metadata.PackageNotFoundError:
            yield Finding(library, "fail", "not installed", f"pip install '{text}'")
            continue
        fits = all((_numbers(version) >= _numbers(other)) == (sign == ">=") for sign, other in bounds)
        remedy = "" if fits else f"pip install '{text}'"
        yield Finding(library, "ok" if fits else "fail", version, remedy)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def native() -> Finding:
    if os.environ.get("FOREBAY_NATIVE") == "0":
        return Finding("native part", "warn", "left out by FOREBAY_NATIVE=0: slower", "unset FOREBAY_NATIVE")
    try:
        module = import_module("forebay_native")
    except ImportError as error:
        return Finding(
            "native part",
            "warn",
            f"not there ({error}): records are decoded in Python, several times slower",
            "install the forebay-native wheel; in a clone of Forebay: make setup",
        )
    return Finding("native part", "ok", f"at {module.__file__}")


def project_file(project: Project | None) -> Finding:
    if project is None:
        return Finding("forebay.toml", "ok", "none in this folder or above it")
    chosen = f", profile {project.profile}" if project.profile else ""
    return Finding("forebay.toml", "ok", f"{project.path}{chosen}")


def brokers(where: Where) -> Finding:
    from forebay.kafka.admin import Cluster
    from forebay.kafka.settings import address

    cluster = Cluster(where.options)
    try:
        count = cluster.brokers()
    except ForebayError as error:
        if where.brokers_named:
            return Finding("brokers", "fail", error.message, error.remedy)
        return Finding(
            "brokers", "warn", "none is named, and none answers at localhost:9092",
            "forebay dev up; or export KAFKA_BOOTSTRAP_SERVERS, or brokers in forebay.toml",
        )  # fmt: skip
    finally:
        cluster.close()
    return Finding("brokers", "ok", f"{count} at {address(where.options)}")


def registry(url: str | None) -> Finding:
    if not url:
        return Finding("registry", "ok", "none is named; only Avro, Protobuf and JSON schemas need one")
    from forebay.cli.brokers import registry as opened

    try:
        found = len(opened(url).subjects())
    except ForebayError as error:
        return Finding("registry", "fail", error.message, error.remedy or "check SCHEMA_REGISTRY_URL")
    return Finding("registry", "ok", f"{found} subjects at {url}")


def clock(where: Where) -> Finding:
    """Against a registry's clock; else whether the brokers have records from what is the future here."""
    ahead = _ahead_of_registry(where.registry) if where.registry else None
    remedy = "set the clock of this machine or of the other: timedatectl set-ntp true"
    if ahead is not None:
        direction = "ahead of" if ahead > 0 else "behind"
        text = f"{abs(ahead):.1f} s {direction} the registry's"
        off = abs(ahead) > CLOCK_S
        return Finding("clock", "warn" if off else "ok", text, remedy if off else "")
    topics = _with_future_records(where.options)
    if topics is None:
        return Finding("clock", "ok", "not compared: no registry and no broker answers")
    if topics:
        listed = f"topic {topics[0]} has" if len(topics) == 1 else f"topics {', '.join(topics)} have"
        text = f"{listed} records from the future: this clock is behind, or that of who wrote them ahead"
        return Finding("clock", "warn", text, remedy)
    return Finding("clock", "ok", "no topic has records from the future")


def _ahead_of_registry(urls: str) -> float | None:
    """By how many seconds this clock is ahead; None if the registry does not say. A refusal has a Date, too."""
    request = urllib.request.Request(urls.split(",")[0].strip(), method="HEAD")  # noqa: S310
    if request.type not in ("http", "https"):
        return None
    try:
        began = time.time()
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
                date = response.headers["Date"]
        except urllib.error.HTTPError as refused:
            date = refused.headers["Date"]
        here = (began + time.time()) / 2
        there = parsedate_to_datetime(date).timestamp() + 0.5  # it names the second, not the moment in it
    except (OSError, TypeError, ValueError):
        return None
    return here - there


def _with_future_records(options: Options) -> list[str] | None:
    """The topics that have some; None if no broker answers."""
    from forebay.kafka.admin import Cluster, partitions_of

    cluster = Cluster(options)
    try:
        names = [name for name in cluster.topics() if not name.startswith("_")]
        partitions = partitions_of(cluster.describe(names))
        ends = cluster.latest(partitions)
        later = cluster.at_timestamp(partitions, int((time.time() + CLOCK_S) * 1000))
    except ForebayError:
        return None
    finally:
        cluster.close()
    return sorted({name for (name, number), end in ends.items() if later.get((name, number), end) < end})


def disk(what: str, path: Path) -> Finding:
    """The space that is left where a folder is or will be."""
    there = path
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{free / (1 << 30):.1f} GiB free at {path}"
    if not os.access(there, os.W_OK):
        return Finding(what, "fail", f"{there} cannot be written", "make it writable, or name another folder")
    if free < TOO_LOW_BYTES:
        return Finding(what, "fail", text, "make room, or name another folder")
    return Finding(what, "warn" if free < LOW_BYTES else "ok", text, "make room" if free < LOW_BYTES else "")
