"""Lines over a common axis as SVG, for benchmarks with curves."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDE, HIGH, LEFT, BELOW, ABOVE = 520, 300, 60, 40, 50
COLOURS = ["#8fa3b5", "#1d3557", "#c1440e", "#3a7ca5", "#6a994e", "#b56576", "#e09f3e", "#5c4d7d"]


@dataclass
class Curve:
    """A curve. Curves of the same name share a colour."""

    name: str
    x: list[float]
    y: list[float]


@dataclass
class Panel:
    title: str
    x_label: str
    y_label: str
    curves: list[Curve]


def ticks(low: float, high: float) -> list[float]:
    """Returns about five round numbers from low to high."""
    span = max(high - low, 1e-12)
    step = 10.0 ** (len(f"{int(span)}") - 1 if span >= 1 else -1)
    while span / step > 6:
        step *= 2
    while span / step < 3:
        step /= 2
    first = int(low / step)
    return [step * k for k in range(first, int(high / step) + 1) if low <= step * k <= high]


def panel(shown: Panel, left: float) -> list[str]:
    xs = [x for curve in shown.curves for x in curve.x]
    ys = [y for curve in shown.curves for y in curve.y]
    x_high, y_low, y_high = max(xs), min(ys), max(ys)
    y_span = (y_high - y_low) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + LEFT + WIDE * x / x_high, ABOVE + HIGH * (y_high - y) / y_span

    parts = [f'<text x="{left + LEFT}" y="20" font-weight="bold">{escape(shown.title)}</text>']
    for value in ticks(0, x_high):
        x, y = at(value, y_low)
        parts.append(f'<path d="M{x:.1f} {ABOVE}V{y:.1f}" stroke="#e3e8ee"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{value:g}</text>')
    for value in ticks(y_low, y_high):
        x, y = at(0, value)
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{WIDE}" stroke="#e3e8ee"/>')
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = left + LEFT + WIDE / 2
    parts.append(f'<text x="{middle}" y="{ABOVE + HIGH + 32}" text-anchor="middle">{escape(shown.x_label)}</text>')
    parts.append(f'<text x="{left + LEFT}" y="{ABOVE - 8}" text-anchor="end">{escape(shown.y_label)}</text>')
    names = list(dict.fromkeys(curve.name for curve in shown.curves))
    for curve in shown.curves:
        every = max(1, len(curve.x) // 400)
        points = [at(x, y) for x, y in zip(curve.x[::every], curve.y[::every], strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[names.index(curve.name)]}" stroke-width="1.4"/>')
    for k, name in enumerate(names):
        x = left + LEFT + WIDE - 130
        parts.append(f'<path d="M{x} {ABOVE + 14 + 16 * k}h18" stroke="{COLOURS[k]}" stroke-width="2.4"/>')
        parts.append(f'<text x="{x + 24}" y="{ABOVE + 18 + 16 * k}">{escape(name)}</text>')
    return parts


def draw(panels: list[Panel]) -> str:
    """Returns the panels next to each other. A panel has at least one curve, and at most eight names."""
    width, height = len(panels) * (LEFT + WIDE + 30), ABOVE + HIGH + BELOW
    parts = [part for k, shown in enumerate(panels) for part in panel(shown, k * (LEFT + WIDE + 30))]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    font = "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"11\" fill=\"#1b2430\""
    return "\n".join([f"{head} {font}>", '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""])
