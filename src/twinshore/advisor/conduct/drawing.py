"""Drawings for a page, as SVG within it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from twinshore.fleet.sentences import moment

WIDTH, HEIGHT, EDGE = 800, 90, 14
ROW, NAME = 20, 330


def course(points: Mapping[int, tuple[int, int]], span: tuple[int, int, int], told: str) -> str:
    """Requests a second over time; nothing where there is nothing to see."""
    from_ms, to_ms, stretch_ms = span
    first, last = from_ms // stretch_ms, max(to_ms // stretch_ms, from_ms // stretch_ms + 1)
    rates = [points.get(number, (0, 0))[0] * 1000 / stretch_ms for number in range(first, last + 1)]
    top = max(rates)
    if not top:
        return ""
    floor = HEIGHT - EDGE
    step = WIDTH / (len(rates) - 1)
    dots = " ".join(f"{x * step:.1f},{floor - rate / top * (floor - EDGE):.1f}" for x, rate in enumerate(rates))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">'
        f'<polygon class="area" points="0,{floor} {dots} {WIDTH},{floor}"/>'
        f'<line class="axis" x1="0" y1="{floor}" x2="{WIDTH}" y2="{floor}"/>'
        f'<text x="0" y="{EDGE - 3}">{top:,.1f} {escape(told)}</text>'
        f'<text x="0" y="{HEIGHT - 2}">{moment(from_ms)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 2}" text-anchor="end">{moment(to_ms)}</text></svg>\n'
    )


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A bar for each name, with its figure in words."""
    top = max((value for _, value, _ in rows), default=0) or 1
    room = WIDTH - NAME - 90
    drawn = "".join(
        f'<text x="0" y="{y * ROW + 14}">{escape(_short(name))}</text>'
        f'<rect class="bar" x="{NAME}" y="{y * ROW + 4}" width="{max(1.0, value / top * room):.1f}" height="13"/>'
        f'<text x="{NAME + max(1.0, value / top * room) + 6:.1f}" y="{y * ROW + 14}">{escape(told)}</text>'
        for y, (name, value, told) in enumerate(rows)
    )
    return f'<svg viewBox="0 0 {WIDTH} {len(rows) * ROW + 4}" role="img">{drawn}</svg>\n'


def _short(name: str, most: int = 52) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
