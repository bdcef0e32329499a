"""Bars of methods in several cases with the ideal, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = ["#8fa3b5", "#1d3557", "#3a7ca5"]


def chart(methods: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[Sequence[str]] | None = None) -> str:
    """Returns a bar per case and method, with a line at the ideal. Rows hold sizes, case, a number per method, and the
    ideal. There are at most three methods, and a number may be "". `marks` holds per row a number per method, drawn as a
    short line across its bar."""
    left, wide, high = 330, 520, 64
    parts = []
    for k, row in enumerate(rows):
        top = 40 + k * high
        parts.append(f'<text x="{left - 10}" y="{top + 16}" text-anchor="end" font-weight="bold">{row[0]}</text>')
        parts.append(f'<text x="{left - 10}" y="{top + 32}" text-anchor="end" font-size="10">{row[1]}</text>')
        for j, value in enumerate(row[2:-1]):
            if not value:
                continue
            y, width = top + 14 * j, wide * float(value)
            parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="11" fill="{COLOURS[j]}"/>')
            parts.append(f'<text x="{left + width + 5:.1f}" y="{y + 9.5}" font-size="10">{value}</text>')
            if marks is not None:
                x = left + wide * float(marks[k][j])
                parts.append(f'<path d="M{x:.1f} {y - 1}V{y + 12}" stroke="#e9a23b" stroke-width="1.6"/>')
        x = left + wide * float(row[-1])
        parts.append(f'<path d="M{x:.1f} {top - 4}V{top + 44}" stroke="#c1440e" stroke-width="1.6"/>')
    for j, method in enumerate(methods):
        parts.append(f'<rect x="{left + 120 * j}" y="12" width="10" height="10" fill="{COLOURS[j]}"/>')
        parts.append(f'<text x="{left + 120 * j + 15}" y="21">{method}</text>')
    parts.append(f'<path d="M{left + 365} 10V24" stroke="#c1440e" stroke-width="1.6"/>')
    parts.append(f'<text x="{left + 372}" y="21">ideal</text>')
    if marks is not None:
        parts.append(f'<path d="M{left + 425} 11V24" stroke="#e9a23b" stroke-width="1.6"/>')
        parts.append(f'<text x="{left + 432}" y="21">simulated</text>')
    height = 40 + high * len(rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="940" height="{height}" viewBox="0 0 940 {height}"'
    font = "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"11\" fill=\"#1b2430\""
    return "\n".join([f"{head} {font}>", '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""])
