"""Draws a run as SVG: one panel per measure, one bar per contestant, grouped by store."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .readings import Readings
from .report import STORES, format_number

PANELS = ("drain", "enqueue one by one", "enqueue by 16 callers", "enqueue in bulk", "pickup p50", "pickup p99")
WIDTH, LEFT, RIGHT = 900, 240, 110
BAR, GAP, HEAD, BETWEEN = 16, 5, 30, 26
COLORS = {"detent": "#0b6e4f", "raw": "#9aa5b1", "peer": "#4a6fa5"}
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2933}.t{font-weight:600;font-size:14px}.s{fill:#616e7c}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.s{fill:#9aa5b1}}"
)


def kind_of(name: str) -> str:
    return "detent" if name.startswith("detent") else "raw" if name.startswith(("raw", "minimal")) else "peer"


def svg(readings: Readings, panels: Sequence[str] = PANELS) -> str:
    parts: list[str] = []
    y = 10
    for measure in panels:
        if measure in readings.measures:
            drawn, y = _panel(readings, measure, y)
            parts += drawn
    frame = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
    title = "<title>Detent against raw loops and peers, medians</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {frame}>'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *parts, "</svg>"]) + "\n"


def _panel(readings: Readings, measure: str, y: int) -> tuple[list[str], int]:
    values = readings.measures[measure]
    better = "less is better" if values.lower_is_better else "more is better"
    parts = [f'<text class="t" x="10" y="{y + 14}">{escape(measure)} ({escape(values.unit)}, {better})</text>']
    y += HEAD
    medians = {contestant: readings.median(measure, contestant) or 0.0 for contestant in values.values}
    most = max(medians.values(), default=0.0) or 1.0
    for store, title in STORES.items():
        names = readings.ranked(measure, store)
        if not names:
            continue
        parts.append(f'<text class="s" x="10" y="{y + 12}">{title}</text>')
        for name in names:
            parts += _bar(name, medians[name], most, y)
            y += BAR + GAP
        y += GAP
    return parts, y + BETWEEN


def _bar(name: str, value: float, most: float, y: int) -> list[str]:
    width = max(1.0, value / most * (WIDTH - LEFT - RIGHT))
    box = f'x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"'
    return [
        f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
        f'<rect {box} rx="2" fill="{COLORS[kind_of(name)]}"/>',
        f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}">{format_number(value)}</text>',
    ]
