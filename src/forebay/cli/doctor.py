"""`forebay doctor`: is all there that Forebay needs?"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from forebay.cli.brokers import (
    BrokersOption,
    KafkaConfigOption,
    RegistryOption,
    SetOption,
    options,
    running,
)
from forebay.cli.checks import Finding, Where, findings
from forebay.cli.inspect import DEFAULT_HOME
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_rows
from forebay.cli.profile import profile_option

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: Annotated[
        Path | None,
        typer.Option(
            "--home", help="the home whose disk is looked at; FOREBAY_HOME or .forebay unless given"
        ),
    ] = None,
    brokers: BrokersOption = None,
    registry: RegistryOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
    profile: Annotated[str | None, profile_option()] = None,
) -> None:
    """Look whether all that Forebay needs is there: a line each, with what to do about it.

    Java, Python, libraries, the native part, forebay.toml, disks, brokers, registry, clock. Starts no Spark, writes
    nothing, and gives up on who does not answer after five seconds. The exit code is 1 if a line says fail.

    Examples: forebay doctor · forebay doctor -o json · forebay doctor --profile production
    """
    from forebay import project
    from forebay.cache import cache_root
    from forebay.errors import ForebayError

    file, wrong = None, None
    try:
        file = project.offer(profile)
    except ForebayError as error:
        wrong = Finding("forebay.toml", "fail", str(error).partition("\n  remedy:")[0], error.remedy)
    where = Where(
        options(brokers, pairs=set_, kafka_config=kafka_config),
        bool(brokers or os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or running("bootstrap_servers")),
        registry or os.environ.get("SCHEMA_REGISTRY_URL") or running("schema_registry_url"),
        home or Path(os.environ.get("FOREBAY_HOME") or DEFAULT_HOME),
        cache_root(),
    )
    found = []
    for each in findings(where, file):
        line = wrong if wrong is not None and each.check == wrong.check else each
        found.append(line)
        if output is OutputFormat.TABLE:
            _print(line)
    if output is not OutputFormat.TABLE:
        show_rows([dataclasses.asdict(each) for each in found], output)
    if any(each.state == "fail" for each in found):
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    line = Text.assemble(
        (f"{finding.state:<5}", COLOURS[finding.state]), f"{finding.check:<16}", finding.found
    )
    if finding.remedy:
        line.append(f"\n{'':<21}{finding.remedy}", "bold")
    Console().print(line, soft_wrap=True, highlight=False)
