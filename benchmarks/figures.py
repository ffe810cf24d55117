"""What a plot shows, and having it drawn: matplotlib lives in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.environment import PeerError, last_words, virtual_environment

MATPLOTLIB = "matplotlib==3.11.2"
DRAW_TIMEOUT_S = 300


@dataclass(frozen=True)
class Series:
    """A peer, or a kind of cost: [median, lowest, highest] in each group.

    None where there should be one and is not, an empty list where nothing was asked.
    """

    name: str
    values: Sequence[list[float] | None]


@dataclass(frozen=True)
class Panel:
    title: str
    groups: Sequence[str]
    series: Sequence[Series]


@dataclass(frozen=True)
class Figure:
    """`kind` is "bars", grouped, or "lines", whose groups are numbers: what they are is said by `across`.

    Several panels of lines say in their titles what they show. Panels of bars share the label and a logarithmic scale. With `linear` each has a scale of its own, from zero, and
    says in its title what it shows.
    """

    name: str
    kind: str
    label: str
    title: str
    panels: Sequence[Panel]
    linear: bool = False
    across: str = "million records through"


def draw(figure: Figure, folder: Path, work: Path) -> None:
    """`<name>.png` and `<name>.svg` in the folder."""
    python = virtual_environment(work / "venv-plot", [MATPLOTLIB])
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [python, str(Path(__file__).with_name("draw.py")), str(folder / figure.name)],
        input=json.dumps(asdict(figure)), capture_output=True, text=True, timeout=DRAW_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise PeerError(f"could not draw {figure.name}: {last_words(done.stderr)}")
