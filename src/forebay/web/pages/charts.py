"""ECharts, with its text as text (`richText`: its tooltips are drawn, not HTML), in colours for light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

INK = "#7d8896"  # readable on both grounds
GRID = "rgba(125, 136, 150, .18)"
COLOURS = ("#2f7fd1", "#e0803a", "#2fa36b", "#c2497b", "#8a6fd1", "#b39418", "#3aa6b5", "#d15a4a")

Points = Sequence[tuple[float, float | None]]


class Lines:
    """Lines over time. A series is a name and its points: (milliseconds, value); None leaves a gap.

    ECharts is half of all that a page loads. It comes when the page is on the screen; until then there is its place.
    """

    def __init__(self, label: str, unit: str = "", *, stacked: bool = False, small: bool = False) -> None:
        self._stacked, self._label = stacked, label
        self._options = _base(unit)
        self._chart: ui.echart | None = None
        self._place = ui.element("div").classes("chart-place" + (" chart-small" if small else ""))
        self._small = small
        self._shown: Any = None
        with self._place:
            ui.timer(0, self._draw, once=True)

    def _draw(self) -> None:
        with self._place:
            self._chart = ui.echart(self._options).classes("chart-small" if self._small else "")
        self._chart._props["role"] = "img"
        self._chart._props["aria-label"] = self._label

    def show(
        self, series: Mapping[str, Points], window: tuple[float, float] | None = None, unit: str | None = None
    ) -> None:
        """`window`: from when to when, in milliseconds; otherwise as far as the points go. `unit`: another one than before."""
        made = [
            {
                "type": "bar" if self._stacked else "line", "name": name, "data": [list(point) for point in points],
                "showSymbol": False, "lineStyle": {"width": 1.8}, "stack": "all" if self._stacked else None,
                "areaStyle": {"opacity": 0.1} if len(series) == 1 else None, "color": COLOURS[place % len(COLOURS)],
                "barMaxWidth": 14, "connectNulls": False, "animation": False,
            }
            for place, (name, points) in enumerate(series.items())
        ]  # fmt: skip
        if (made, window) == self._shown:
            return
        self._shown = (made, window)
        options = self._options if self._chart is None else self._chart.options
        if unit is not None:
            options["yAxis"]["axisLabel"]["formatter"] = f"{{value}} {unit}"
        if window is not None:
            options["xAxis"]["min"], options["xAxis"]["max"] = window
        options["series"] = made
        options["legend"]["show"] = len(made) > 1
        options["grid"]["top"] = 30 if len(made) > 1 else 12
        if self._chart is not None:
            self._chart.update()


def in_bytes(points: Points) -> tuple[str, Points]:
    """Sizes in a unit that makes them short, and that unit."""
    most = max((value for _, value in points if value is not None), default=0.0)
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if most >= size:
            return unit, [(at, None if value is None else round(value / size, 3)) for at, value in points]
    return "B", points


def bars(label: str, names: Sequence[str], values: Mapping[str, Sequence[float | None]], line: bool) -> None:
    """A result's columns beside each other."""
    options = _base("")
    options["xAxis"] = {
        "type": "category",
        "data": list(names),
        "axisLabel": {"color": INK},
        "axisLine": {"lineStyle": {"color": GRID}},
    }
    options["legend"]["show"] = len(values) > 1
    options["grid"]["top"] = 30 if len(values) > 1 else 12
    options["series"] = [
        {"type": "line" if line else "bar", "name": name, "data": list(given), "color": COLOURS[place % len(COLOURS)], "showSymbol": False, "animation": False}
        for place, (name, given) in enumerate(values.items())
    ]  # fmt: skip
    chart = ui.echart(options)
    chart._props["role"] = "img"
    chart._props["aria-label"] = label


def _base(unit: str) -> dict[str, Any]:
    return {
        "textStyle": {"fontFamily": "system-ui, sans-serif", "fontSize": 12},
        "grid": {"left": 4, "right": 12, "top": 12, "bottom": 4, "containLabel": True},
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "legend": {"show": False, "top": 0, "left": 0, "type": "scroll", "itemWidth": 14, "itemHeight": 8, "textStyle": {"color": INK}},
        "xAxis": {"type": "time", "axisLabel": {"color": INK, "hideOverlap": True}, "axisLine": {"lineStyle": {"color": GRID}}, "axisTick": {"show": False}, "splitLine": {"show": False}},
        "yAxis": {"type": "value", "name": "", "min": 0, "minInterval": 0, "splitNumber": 3, "axisLabel": {"color": INK, "formatter": "{value}" + (f" {unit}" if unit else "")}, "splitLine": {"lineStyle": {"color": GRID}}},
        "series": [],
    }  # fmt: skip
