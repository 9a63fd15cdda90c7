"""Server-drawn SVG: the map of clusters and links, bars of offsets, lines of rates. Colours are classes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from twinshore.server.core.words import RANK_WORDS, amount
from twinshore.server.html import Markup, link, tag
from twinshore.server.layout import path_to
from twinshore.state.core.platform_values import SeriesPoint

WIDTH, HEIGHT, RADIUS = 640, 300, 34
LINE_WIDTH, LINE_HEIGHT = 600, 90
CLUSTERS_DRAWN = 24


def cluster_map(links: Sequence[dict[str, Any]], silent: Collection[str]) -> Markup | None:
    """Clusters on a ring, links as arrows between them; None for too many. `silent`: clusters that do not answer."""
    names = sorted({name for one in links for name in one["link"].split("->")})
    if not names or len(names) > CLUSTERS_DRAWN:
        return None
    middle_x, middle_y = WIDTH / 2, HEIGHT / 2
    places = {}
    for number, name in enumerate(names):
        angle = math.pi + 2 * math.pi * number / len(names)
        places[name] = middle_x + 0.38 * WIDTH * math.cos(angle), middle_y + 0.36 * HEIGHT * math.sin(angle)
    shown = [_arrow(one, places) for one in links]
    circles = [
        tag(
            "g",
            tag("title", f"{name} does not answer") if name in silent else None,
            tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=RADIUS, class_=f"cluster{' silent' * (name in silent)}"),
            tag("text", name[:12], x=f"{x:.0f}", y=f"{y + 5:.0f}", text_anchor="middle"),
        )
        for name, (x, y) in places.items()
    ]
    title = tag("title", f"{len(names)} clusters and {len(links)} links")
    height = HEIGHT if len(names) > 2 else 4 * RADIUS  # two stand beside each other
    box = f"0 {(HEIGHT - height) // 2} {WIDTH} {height}"
    return tag("svg", title, shown, circles, viewBox=box, class_="map")


def _arrow(one: dict[str, Any], places: dict[str, tuple[float, float]]) -> Markup:
    source, _, target = one["link"].partition("->")
    (x1, y1), (x2, y2) = places[source], places[target]
    length = math.hypot(x2 - x1, y2 - y1) or 1
    along_x, along_y = (x2 - x1) / length, (y2 - y1) / length
    # Both directions of a pair are drawn beside each other.
    aside_x, aside_y = -8 * along_y, 8 * along_x
    x1, y1 = x1 + RADIUS * along_x + aside_x, y1 + RADIUS * along_y + aside_y
    x2, y2 = x2 - (RADIUS + 8) * along_x + aside_x, y2 - (RADIUS + 8) * along_y + aside_y
    kind = f"arrow rank-{RANK_WORDS[one['rank']]}"
    line = tag("line", x1=f"{x1:.0f}", y1=f"{y1:.0f}", x2=f"{x2:.0f}", y2=f"{y2:.0f}")
    tip = [(0.0, 0.0), (-9 * along_x - 5 * along_y, -9 * along_y + 5 * along_x)]
    tip.append((-9 * along_x + 5 * along_y, -9 * along_y - 5 * along_x))
    points = " ".join(f"{x2 + 8 * along_x + dx:.0f},{y2 + 8 * along_y + dy:.0f}" for dx, dy in tip)
    said = "lag unknown" if one["lag"] < 0 else f"{amount(one['lag'])} behind"
    words = tag(
        "text",
        said,
        x=f"{(x1 + x2) / 2 + 3 * aside_x:.0f}",
        y=f"{(y1 + y2) / 2 + 3 * aside_y + 6:.0f}",
        text_anchor="middle",
    )
    whole = tag("g", tag("title", f"{one['link']}: {said}"), line, tag("polygon", points=points), words, class_=kind)
    return link(path_to("links", one["link"]), whole)


def offset_bar(partition: dict[str, Any]) -> Markup:
    """One partition's offsets to scale: what the twin has, what it lacks, how far it is proven."""
    start, end, twin = partition["start"], partition["source_end"], partition["twin_end"]
    span = max(1, end - start)

    def place(offset: int) -> str:
        return f"{100 * min(1.0, max(0.0, (offset - start) / span)):.2f}"

    parts = [tag("rect", x=0, y=0, width=100, height=8, class_="lacks")] if twin < end else []
    parts.append(tag("rect", x=0, y=0, width=place(twin), height=8, class_="twin"))
    if partition["proven_to"] > start:
        parts.append(tag("rect", x=0, y=8, width=place(partition["proven_to"]), height=3, class_="proven"))
    title = tag("title", f"offsets {start} to {end}; the twin ends at {twin}")
    return tag("svg", title, parts, viewBox="0 0 100 11", preserveAspectRatio="none", class_="bar", role="img")


def rate_line(points: Sequence[SeriesPoint], minute: int, minutes: int) -> Markup | None:
    """Records per second of the last minutes; None without points."""
    if len(points) < 2:
        return None
    top = max(point.records_per_s for point in points) or 1.0
    first = minute - minutes
    places = [
        (LINE_WIDTH * (point.minute - first) / minutes, LINE_HEIGHT * (1 - point.records_per_s / top) + 4)
        for point in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    title = tag("title", f"records per second in the last {minutes // 60} hours, {amount(top)} at most")
    drawn = tag("polyline", points=line, class_="rate")
    most = tag("text", f"{amount(top)} records/s", x=4, y=14)
    return tag("svg", title, drawn, most, viewBox=f"0 0 {LINE_WIDTH} {LINE_HEIGHT + 8}", class_="series", role="img")
