"""Fetch pinned artifacts from Maven Central with the Ivy that PySpark carries.

Each artifact is named and taken without its dependencies, and POMs are not read: what arrives is
exactly what is pinned. The repository is Ivy's own default for Maven; `FOREBAY_MAVEN_REPOSITORY` puts
a mirror in its place, which is safe because the sums are checked whatever the origin.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from forebay.devstack.artifacts import ArtifactSet, MavenFile
from forebay.errors import DownloadError
from forebay.jvm.java import find_java

# Milliseconds. Without them a firewall that drops packets makes Ivy wait for ever.
_TIMEOUTS = (
    "-Dsun.net.client.defaultConnectTimeout=15000",
    "-Dsun.net.client.defaultReadTimeout=60000",
)
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_REMEDY = (
    "check the network and run it again; behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… "
    "-Dhttps.proxyPort=…', with a mirror set FOREBAY_MAVEN_REPOSITORY to its address"
)


def retrieve(wanted: ArtifactSet, work: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download the set under `work` and return the folder with its files, not yet verified.

    `on_bytes` is called several times a second with the number of bytes on disk so far.
    """
    files, store = work / "files", work / "ivy"
    files.mkdir()
    settings, module, log = work / "settings.xml", work / "ivy.xml", work / "ivy.log"
    settings.write_text(_settings(os.environ.get("FOREBAY_MAVEN_REPOSITORY", "")), encoding="utf-8")
    module.write_text(_module(wanted), encoding="utf-8")
    command = [find_java().path, *_TIMEOUTS, "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(store)]
    command += ["-retrieve", f"{files}/{_PATTERN}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=work
        )
        try:
            while process.poll() is None:
                on_bytes(_bytes_under(store))
                try:
                    process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        reason = failure_reason(log.read_text(encoding="utf-8", errors="replace"))
        raise DownloadError(f"{wanted.title} {wanted.version} could not be fetched: {reason}", remedy=_REMEDY)
    on_bytes(wanted.size)
    return files


def failure_reason(log: str) -> str:
    """The line of Ivy's output that says most about why it failed."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for sign in ("Server access error", "Host ", "[FAILED", "not found", "Exception"):
        for line in lines:
            if sign in line:
                return line
    return lines[-1] if lines else "Ivy said nothing"


def _ivy_jar() -> Path:
    # Found and not imported: whoever asks for the stack's addresses need not wait for PySpark.
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    jars = sorted(jar for folder in folders or () for jar in (Path(folder) / "jars").glob("ivy-*.jar"))
    if not jars:
        raise DownloadError(
            "this PySpark installation has no jars/ivy-*.jar", remedy="install pyspark from PyPI"
        )
    return jars[-1]


def _bytes_under(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except FileNotFoundError:
            continue  # Ivy renames a finished .part file between the listing and the question
    return total


def _settings(repository: str) -> str:
    root = f" root={quoteattr(repository.rstrip('/') + '/')}" if repository else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )


def _module(wanted: ArtifactSet) -> str:
    dependencies = "\n".join(_dependency(artifact) for artifact in wanted.artifacts)
    # The namespace is a name that Ivy compares, not an address that anyone opens.
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="forebay" module="devstack"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>\n{dependencies}\n</dependencies></ivy-module>"
    )


def _dependency(artifact: MavenFile) -> str:
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    kind = quoteattr(artifact.type)
    return (
        f"<dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.version)} transitive="false" conf="default->*">'
        f"<artifact name={quoteattr(artifact.name)} type={kind} ext={kind}{classifier}/></dependency>"
    )
