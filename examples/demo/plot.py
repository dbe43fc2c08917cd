"""Draws the curves of a table of runs as an SVG file, without any library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

WIDTH, HEIGHT, MARGIN = 720, 400, 60
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951")


def plot(frame: pandas.DataFrame, file: Path) -> None:
    """The column crosses over the column epoch, a curve for each run."""
    last = max(1, int(frame["epoch"].max()))
    lowest = float(frame["crosses"].min())

    def place(epoch: float, value: float) -> tuple[float, float]:
        across = MARGIN + epoch / last * (WIDTH - 2 * MARGIN)
        return across, HEIGHT - MARGIN - (value - lowest) / (1 - lowest) * (HEIGHT - 2 * MARGIN)

    parts = [text(MARGIN, MARGIN / 2, "crosses that were recognised, by epoch: computed after the runs had ended")]
    for value in (lowest, (1 + lowest) / 2, 1.0):
        x, y = place(0, value)
        parts.append(f'<path d="M{x},{y}H{WIDTH - MARGIN}" stroke="#ddd"/>' + text(8, y + 4, f"{value:.2f}"))
    parts += [text(place(epoch, lowest)[0] - 4, HEIGHT - MARGIN / 2, str(epoch)) for epoch in (0, last // 2, last)]
    for colour, (run, curve) in zip(COLOURS, frame.groupby("run", sort=False), strict=False):
        points = [place(epoch, value) for epoch, value in zip(curve["epoch"], curve["crosses"], strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(text(points[-1][0] - 90, points[-1][1] - 10, f"{str(run)[:8]} lr={curve['lr'].iloc[0]:g}", colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13"'
    whole = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(whole + "\n".join(parts) + "</svg>\n", encoding="utf-8")


def text(x: float, y: float, words: str, colour: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{words}</text>'
