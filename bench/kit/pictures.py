"""The pictures of README, and its figures beside MirrorMaker 2: drawn from what a bench and a demo wrote.

Pure: text of pages in, text of drawings out. Each picture is drawn twice, for a light and a dark page.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench.kit.page import PAGE

ROOT = PAGE.parents[1]
PICTURES = ROOT / "docs" / "pictures"
RECORDED_DEMO = ROOT / "docs" / "evidence" / "demo.txt"
FIGURES_BEGIN, FIGURES_END = "<!-- figures -->\n", "<!-- end of figures -->\n"
DEMO_LINES = 12
_SANS = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
_MONO = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"


@dataclass(frozen=True, slots=True)
class Ink:
    """The colours of one kind of page."""

    name: str
    text: str
    faint: str
    edge: str
    paper: str
    east: str
    west: str
    ours: str
    theirs: str


LIGHT = Ink("light", "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa", "#0969da", "#1a7f37", "#8250df", "#afb8c1")
DARK = Ink("dark", "#f0f6fc", "#9198a1", "#3d444d", "#151b23", "#4493f8", "#3fb950", "#ab7df8", "#656c76")


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure of both copiers, and how many times ours is better."""

    what: str
    ours: float
    theirs: float
    unit: str
    better: str
    times: float


def drawings(bench_page: str, demo: str) -> dict[Path, str]:
    """Each picture's file, and what it should hold."""
    figures = beside_mirrormaker(bench_page)
    found = {}
    for ink in (LIGHT, DARK):
        found[PICTURES / f"same-offsets-{ink.name}.svg"] = _clusters(ink)
        found[PICTURES / f"beside-mirrormaker-{ink.name}.svg"] = _bars(figures, ink)
        found[PICTURES / f"demo-{ink.name}.svg"] = _terminal(demo, ink)
    return found


def beside_mirrormaker(bench_page: str) -> list[Beside]:
    """The three figures: from the line that the bench ends with, and from its tables what was divided by what."""
    line = re.search(r'^\{"bench": "mirror".*\}$', bench_page, re.MULTILINE)
    peer = re.search(r"^\| plain: [^|]* \| [^|]* \| [^|]* \| ([^|]*) \|$", bench_page, re.MULTILINE)
    assert line, "the bench's own line is on the page"
    assert peer, "the page says which of MirrorMaker's settings is the peer"
    ratios = json.loads(line[0])
    ours, theirs = (_median(bench_page, copier) for copier in ("Twinshore, defaults", f"MirrorMaker 2, {peer[1]}"))
    delays = _delay(bench_page, "Twinshore"), _delay(bench_page, "MirrorMaker 2")
    times = (ratios["plain_rate"], 1 / ratios["plain_cpu"], 1 / ratios["p50"])
    return [
        Beside("records/s", ours[0], theirs[0], "", "more", times[0]),
        Beside("CPU for one record", ours[1], theirs[1], " µs", "less", times[1]),
        Beside("median delay, at 100 records/s", *delays, " ms", "less", times[2]),
    ]


def machine_of(bench_page: str) -> str:
    """Where the bench ran, as it says itself."""
    said = re.search(r"^On (.*)\.$", bench_page, re.MULTILINE)
    assert said, "the page names its machine"
    return said[1]


def with_figures(page: str, bench_page: str) -> str:
    """The page with the figures between its marks."""
    head, _, rest = page.partition(FIGURES_BEGIN)
    _, _, tail = rest.partition(FIGURES_END)
    rows = [
        f"| {one.what} | {_number(one.ours)}{one.unit} | {_number(one.theirs)}{one.unit} |"
        f" {one.times:.1f} times {one.better} |"
        for one in beside_mirrormaker(bench_page)
    ]
    lines = ["| 1 KB records | Twinshore | MirrorMaker 2, tuned | |", "| --- | ---: | ---: | ---: |", *rows]
    said = (
        f"Measured side by side on one small machine, by turns ({machine_of(bench_page)}).\n"
        "[Benchmarks](docs/benchmarks.md) has every run, compressed and tiny records, and MirrorMaker's settings;"
        " `make bench-mirror` measures yours."
    )
    return "\n".join([f"{head}{FIGURES_BEGIN.rstrip()}", *lines, "", f"{said}", FIGURES_END]) + tail


def _median(page: str, copier: str) -> tuple[float, float]:
    """Records/s and CPU in us of the plain workload."""
    row = re.search(rf"^\| plain: {re.escape(copier)} \| ([\d,.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert row, f"the page has a row of {copier}"
    return float(row[1].replace(",", "")), float(row[2])


def _delay(page: str, copier: str) -> float:
    """The median delay in ms, the middle of its runs at the lowest rate."""
    found = sorted(float(one) for one in re.findall(rf"^\| 100/s: {copier}[^|]*\| ([\d.]+) \|", page, re.MULTILINE))
    assert found, f"the page has delays of {copier}"
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(figures: list[Beside], ink: Ink) -> str:
    """Three pairs of bars, each pair on a scale of its own."""
    parts = []
    for row, one in enumerate(figures):
        top, largest = 24 + 96 * row, max(one.ours, one.theirs)
        parts += [
            _text(0, top + 14, one.what, ink.text, size=17, weight=600),
            _text(760, top + 46, f"{one.times:.1f}×", ink.ours, size=34, weight=700, anchor="end"),
            _text(760, top + 68, one.better, ink.faint, size=14, anchor="end"),
        ]
        for n, (who, value, colour) in enumerate(
            [("Twinshore", one.ours, ink.ours), ("MirrorMaker 2", one.theirs, ink.theirs)]
        ):
            y, width = top + 26 + 24 * n, max(3.0, 340 * value / largest)
            parts += [
                _text(0, y + 14, who, ink.faint, size=14),
                f"<rect x='120' y='{y}' width='{width:.1f}' height='18' rx='3' fill='{colour}'/>",
                _text(128 + width, y + 14, f"{_number(value)}{one.unit}", ink.text, size=14),
            ]
    said = "; ".join(f"{one.what}: {one.times:.1f} times {one.better} than MirrorMaker 2" for one in figures)
    return _svg(770, 306, said, parts)


def _clusters(ink: Ink) -> str:
    """Two clusters with the same offsets, and a group that moves."""
    parts = []
    for left, name, colour in ((0, "east", ink.east), (520, "west", ink.west)):
        parts += [
            _box(left + 1, 1, 358, 190, 10, colour, ink),
            _text(left + 20, 32, f"{name}: stock Kafka", colour, size=18, weight=600),
        ]
        for n, topic in enumerate(("payments-3", "orders-0")):
            y = 56 + 62 * n
            parts.append(_text(left + 20, y + 12, topic, ink.faint, size=13))
            for cell in range(6):
                x, offset = left + 20 + 54 * cell, (4_711, 81_201)[n] + cell
                stands = (name, offset) in (("east", 81_203), ("west", 81_204))
                parts += [
                    f"<rect x='{x}' y='{y + 20}' width='50' height='28' rx='4' fill='none'"
                    f" stroke='{colour if stands else ink.edge}' stroke-width='1.5'/>",
                    _text(x + 25, y + 39, str(offset), ink.text, size=13, anchor="middle", mono=True),
                ]
    parts += [
        f"<line x1='368' y1='96' x2='504' y2='96' stroke='{ink.ours}' stroke-width='3'/>",
        f"<path d='M502 88 L516 96 L502 104 Z' fill='{ink.ours}'/>",
        _text(440, 78, "Twinshore", ink.ours, size=18, weight=700, anchor="middle"),
        _text(440, 120, "same offsets,", ink.faint, size=14, anchor="middle"),
        _text(440, 138, "same records,", ink.faint, size=14, anchor="middle"),
        _text(440, 156, "proven", ink.faint, size=14, anchor="middle"),
        # The group: it stands behind 81203 on east, and goes on at 81204 on west.
        f"<line x1='153' y1='168' x2='153' y2='226' stroke='{ink.east}' stroke-width='1.5' stroke-dasharray='3 4'/>",
        _box(30, 228, 246, 50, 25, ink.east, ink),
        _text(153, 249, "consumer group", ink.text, size=15, weight=600, anchor="middle"),
        _text(153, 268, "has read to 81203 on east", ink.faint, size=13, anchor="middle"),
        f"<path d='M280 253 C 400 300, 480 300, 588 259' fill='none' stroke='{ink.text}' stroke-width='2'"
        " stroke-dasharray='6 5'/>",
        f"<path d='M583 251 L600 253 L588 267 Z' fill='{ink.text}'/>",
        _text(440, 312, "another address, nothing else", ink.faint, size=14, anchor="middle"),
        f"<line x1='727' y1='168' x2='727' y2='226' stroke='{ink.west}' stroke-width='1.5' stroke-dasharray='3 4'/>",
        _box(604, 228, 246, 50, 25, ink.west, ink),
        _text(727, 249, "the same group", ink.text, size=15, weight=600, anchor="middle"),
        _text(727, 268, "goes on at 81204 on west", ink.faint, size=13, anchor="middle"),
    ]
    said = "Two Kafka clusters hold the same records at the same offsets; a consumer group moves and reads on"
    return _svg(880, 326, said, parts)


def _terminal(demo: str, ink: Ink) -> str:
    """The last lines of a demo, as a terminal shows them."""
    lines = ["$ make demo", "...", *demo.rstrip("\n").splitlines()[-DEMO_LINES:]]
    height, width = 56 + 20 * len(lines), 900
    parts = [
        f"<rect x='1' y='1' width='{width - 2}' height='{height - 2}' rx='10' fill='{ink.paper}' stroke='{ink.edge}'/>",
        *(f"<circle cx='{22 + 18 * n}' cy='20' r='5.5' fill='{ink.edge}'/>" for n in range(3)),
    ]
    for row, line in enumerate(lines):
        strong = line.startswith("demo: ") or "none twice" in line
        colour = ink.west if strong else ink.faint if row < 2 or line.startswith("ending") else ink.text
        parts.append(_text(20, 54 + 20 * row, line, colour, size=13.5, weight=700 if strong else 400, mono=True))
    return _svg(width, height, f"The end of a demo: {lines[-1]}", parts)


def _box(x: int, y: int, width: int, height: int, round: int, colour: str, ink: Ink) -> str:
    place = f"x='{x}' y='{y}' width='{width}' height='{height}' rx='{round}'"
    return f"<rect {place} fill='{ink.paper}' stroke='{colour}' stroke-width='1.5'/>"


def _text(
    x: float,
    y: float,
    said: str,
    colour: str,
    *,
    size: float,
    weight: int = 400,
    anchor: str = "start",
    mono: bool = False,
) -> str:
    font = _MONO if mono else _SANS
    keep = " xml:space='preserve'" if mono else ""
    where = f"x='{x:g}' y='{y:g}' font-size='{size:g}' font-weight='{weight}' text-anchor='{anchor}'"
    return f"<text {where} {font}{keep} fill='{colour}'>{escape(said)}</text>"


def _svg(width: int, height: int, says: str, parts: list[str]) -> str:
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img'>"
    return "\n".join([head, f"<title>{escape(says)}</title>", *parts, "</svg>"]) + "\n"
