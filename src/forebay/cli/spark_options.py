"""Where Spark runs, and how: flags that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.errors import OptionValueError

LOCAL = "local[*]"

MasterOption = Annotated[
    str,
    typer.Option(
        "--master", envvar="FOREBAY_MASTER", help="Spark master: local[*], spark://host:7077, yarn, k8s://…"
    ),
]
ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--archive",
        envvar="FOREBAY_ARCHIVE",
        help="on a cluster: what `forebay pack` has made; workers that have no Forebay get it from there",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", "-c", help="a setting of Spark, as spark-submit takes it: spark.executor.memory=4g"
    ),
]


def conf_of(given: list[str] | None) -> dict[str, str]:
    """Spark's settings from `KEY=VALUE`."""
    found = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise OptionValueError(
                f"--conf {each} is no setting of Spark",
                option="conf",
                remedy="--conf spark.executor.memory=4g",
            )
        found[key.strip()] = value
    return found


def archive_of(given: str | None) -> str | None:
    """The archive as Spark finds it from any folder."""
    return given if given is None or "://" in given else str(Path(given).expanduser().resolve())
