"""`forebay monitoring`: the alert rules and the dashboard that come with the package, as files to use and to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.output import words
from forebay.errors import StatementError

FILES = {
    "forebay-alerts.yml": "alert rules for Prometheus",
    "forebay-dashboard.json": "a dashboard for Grafana",
    "prometheus.yml": "what Prometheus scrapes; put your hosts there",
}


def monitoring(
    folder: Annotated[Path, typer.Argument(help="where to; made if it is not there")] = Path("monitoring"),
    force: Annotated[bool, typer.Option("--force", help="write over files that are there already")] = False,
) -> None:
    """Write alert rules for Prometheus and a dashboard for Grafana into a folder (docs/monitoring.md).

    Examples: forebay monitoring · forebay monitoring /etc/prometheus --force
    """
    from importlib.resources import files

    packaged = files("forebay.telemetry") / "monitoring"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, what in FILES.items():
            path = folder / name
            if path.exists() and not force:
                _say(f"kept {path}: it is there already; --force writes over it")
                continue
            path.write_bytes((packaged / name).read_bytes())
            _say(f"wrote {path}: {what}")
    except OSError as error:
        raise StatementError(
            f"{folder} cannot be written: {error.strerror}",
            remedy="name a folder that you may write into: forebay monitoring DIR",
        ) from None


def _say(line: str) -> None:
    words.print(line, markup=False, highlight=False, soft_wrap=True)
