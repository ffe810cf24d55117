"""Draws a figure of `figures.Figure`, given as JSON on standard input. Run by an interpreter with matplotlib."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ("#d1495b", "#edae49", "#00798c", "#66a182", "#8d6a9f", "#8d96a3")
COLUMNS = 3
mpl.rcParams["svg.hashsalt"] = "forebay"  # the same figure gives the same file


def main() -> None:
    figure = json.load(sys.stdin)
    plot = {"bars": bars, "lines": lines}[figure["kind"]](figure)
    for kind in ("png", "svg"):
        plot.savefig(f"{sys.argv[1]}.{kind}", dpi=150, metadata={"Date": None} if kind == "svg" else None)


def bars(figure: dict[str, Any]) -> Any:
    panels = figure["panels"]
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    plot, grid = plt.subplots(
        rows,
        columns,
        figsize=(5.2 * columns, 3.9 * rows + 0.9),
        sharey=not figure["linear"],
        squeeze=False,
        layout="constrained",
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for number, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
        _panel(axes, panel)
        if figure["linear"]:
            axes.set_ylim(bottom=0)
        else:
            _logarithmic(axes)
        if number % columns == 0:
            axes.set_ylabel(figure["label"])
    labels = [series["name"] for series in panels[0]["series"]]
    handles = [mpl.patches.Patch(color=colour) for colour in COLOURS[: len(labels)]]
    plot.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
    plot.suptitle(textwrap.fill(figure["title"], 52 * columns), fontsize=13)
    return plot


def _panel(axes: Any, panel: dict[str, Any]) -> None:
    width = 0.84 / len(panel["series"])
    for place, series in enumerate(panel["series"]):
        at = [group - 0.42 + width * (place + 0.5) for group in range(len(panel["groups"]))]
        there = [(x, value) for x, value in zip(at, series["values"], strict=True) if value]
        heights = [value[0] for _, value in there]
        below = [value[0] - value[1] for _, value in there]
        above = [value[2] - value[0] for _, value in there]
        axes.bar(
            [x for x, _ in there], heights, width * 0.92, yerr=[below, above], label=series["name"],
            color=COLOURS[place % len(COLOURS)], error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#333333"},
        )  # fmt: skip
        for x, value in zip(at, series["values"], strict=True):
            if value is None:  # failed, or nothing left after the start: the tables say which
                axes.annotate("×", (x, 0), xycoords=("data", "axes fraction"), ha="center", va="bottom",
                              color=COLOURS[place % len(COLOURS)])  # fmt: skip
    axes.set_xlim(-0.5, len(panel["groups"]) - 0.5)
    axes.set_xticks(range(len(panel["groups"])), panel["groups"])
    axes.set_title(panel["title"], fontsize=11)
    axes.grid(axis="y", which="both", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(_short))
    axes.spines[["top", "right"]].set_visible(False)


def _logarithmic(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(_short))


def lines(figure: dict[str, Any]) -> Any:
    panels = figure["panels"]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    size = (8, 4.5) if len(panels) == 1 else (6 * columns, 3.2 * rows)
    plot, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        _lines(axes, panel)
        axes.set_xlabel(figure["across"])
        axes.set_ylabel(figure["label"])
    if len(panels) == 1:
        grid[0][0].set_title(figure["title"], fontsize=12)
    else:
        plot.suptitle(figure["title"], fontsize=13)
    return plot


def _lines(axes: Any, panel: dict[str, Any]) -> None:
    few = len(panel["series"]) <= len(COLOURS) // 2
    for place, series in enumerate(panel["series"]):
        colour = COLOURS[2 * place if few else place]
        there = [
            (float(at), value[0])
            for at, value in zip(panel["groups"], series["values"], strict=True)
            if value
        ]
        axes.plot(
            *zip(*there, strict=True), ".-", color=colour, linewidth=0.8, markersize=4, label=series["name"]
        )
    axes.set_ylim(bottom=0)
    axes.set_title(panel["title"], fontsize=11)
    axes.grid(linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(_short))
    axes.legend(frameon=False, fontsize=9)


def _short(value: float, _: int) -> str:
    for size, sign in ((1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:g} {sign}"
    return f"{value:g}"


if __name__ == "__main__":
    main()
