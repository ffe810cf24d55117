"""Settings of Spark under which a SELECT may have another answer than under those that Forebay runs with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# What these change is how an answer is worked out, not what it is. All else below spark.sql may change it: ANSI mode,
# upper and lower case, how times are read.
_HARMLESS = (
    "spark.sql.adaptive.", "spark.sql.artifact.", "spark.sql.autoBroadcastJoinThreshold", "spark.sql.catalogImplementation",
    "spark.sql.execution.", "spark.sql.redaction.", "spark.sql.shuffle.", "spark.sql.streaming.", "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)  # fmt: skip
_TIME_ZONE = "spark.sql.session.timeZone"


def changes_answers(settings: Mapping[str, str]) -> str | None:
    """The first setting that may change an answer."""
    for key, value in sorted(settings.items()):
        if (
            key.startswith("spark.sql.")
            and not key.startswith(_HARMLESS)
            and (key, value) != (_TIME_ZONE, "UTC")
        ):
            return key
    return None


def from_outside() -> str | None:
    """What in this process's environment sets Spark up before Forebay does."""
    for name in ("SPARK_ANSI_SQL_MODE", "PYSPARK_SUBMIT_ARGS"):
        if name in os.environ:
            return name
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else None)
    defaults = Path(folder) / "spark-defaults.conf" if folder else None
    return str(defaults) if defaults is not None and defaults.exists() else None
