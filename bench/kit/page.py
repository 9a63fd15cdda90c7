"""docs/benchmarks.md: each bench writes its own section and leaves the others alone."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_HEAD = """\
# Benchmarks

Written by the benches themselves, `make bench-mirror`, `make bench-proxy` and `.venv/bin/python -m bench.measure.wan`;
no figure is typed by hand. What is compared runs on the same clusters, in one run, by turns, on the machine that is
named.
"""
_SECTIONS = ("mirror", "wan", "proxy")


def write_section(name: str, text: str, path: Path | None = None, *, by_default: bool = True) -> None:
    """Puts the section into `path`, or into the repository's page unless `by_default` is False."""
    place = path or (PAGE if by_default else None)
    if place is None:
        return
    old = place.read_text(encoding="utf-8") if place.is_file() else ""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(with_section(old, name, text), encoding="utf-8")


def with_section(page: str, name: str, text: str) -> str:
    """The page with this section new and the others as they were."""
    found = re.findall(r"<!-- begin (\w+) -->\n(.*?)<!-- end \1 -->\n", page, re.DOTALL)
    sections = {**dict(found), name: text.strip() + "\n"}
    ordered = [f"<!-- begin {key} -->\n{sections[key]}<!-- end {key} -->\n" for key in _SECTIONS if key in sections]
    return "\n".join([_HEAD, *ordered])


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, figures to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
