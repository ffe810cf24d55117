"""Jars and all they depend on, from Maven Central, by the Ivy that PySpark carries: no Maven needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from benchmarks.peers.environment import MARKER, run_checked

# In milliseconds: a firewall that drops packets must not make Ivy wait for ever.
_TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=60000")


def resolve(directory: Path, coordinates: Sequence[str], java: str, ivy: Path) -> list[Path]:
    """The jars of `group:name:version` and of their run time, kept in `directory`; asked for once."""
    files, marker = directory / "jars", directory / MARKER
    wanted = "\n".join(coordinates)
    if not marker.exists() or marker.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        settings, module = directory / "settings.xml", directory / "ivy.xml"
        settings.write_text(_settings(os.environ.get("FOREBAY_MAVEN_REPOSITORY", "")))
        module.write_text(_module(coordinates))
        command = [java, *_TIMEOUTS, "-cp", str(ivy), "org.apache.ivy.Main", "-settings", str(settings)]
        command += ["-ivy", str(module), "-cache", str(directory / "cache")]
        command += ["-retrieve", f"{files}/[artifact]-[revision](-[classifier]).[ext]"]
        run_checked(command, f"resolve {', '.join(coordinates)}")
        shutil.rmtree(directory / "cache")
        marker.write_text(wanted)
    return sorted(files.glob("*.jar"))


def _settings(repository: str) -> str:
    root = f" root={quoteattr(repository.rstrip('/') + '/')}" if repository else ""
    resolver = f'<ibiblio name="maven" m2compatible="true"{root}/>'
    return f'<ivysettings><settings defaultResolver="maven"/><resolvers>{resolver}</resolvers></ivysettings>'


def _module(coordinates: Sequence[str]) -> str:
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->master,compile,runtime"/>'.format(
            *coordinate.split(":")
        )
        for coordinate in coordinates
    )
    return (
        '<ivy-module version="2.0"><info organisation="forebay" module="benchmarks"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
