"""Hooks of mkdocs.yml: navigation from docs/index.md, and links that lead out of docs/."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")
ITEM = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")
OUTSIDE = "repository"  # where the site has files from outside docs/


def shelves(index: str) -> dict[str, list[tuple[str, str]]]:
    """Each shelf of the index with its pages: title and file."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in index.split("\n## ")[1:]:
        name, _, rest = part.partition("\n")
        found[name] = ITEM.findall(rest)
    return found


def on_config(config: Any) -> Any:
    tabs = shelves((DOCS / "index.md").read_text("utf-8"))
    config.nav = [
        {"Home": "index.md"},
        *({name: [{title: file} for title, file in items]} for name, items in tabs.items()),
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    mkdocs = import_module("mkdocs.structure.files")  # only in the environment that builds the site
    linked = {target for page in DOCS.rglob("*.md") for target in _targets(page) if not target.is_relative_to(DOCS)}
    while more := {t for p in linked if p.suffix == ".md" for t in _targets(p) if not t.is_relative_to(DOCS)} - linked:
        linked |= more
    for path in sorted(linked):
        name = f"{OUTSIDE}/{path.relative_to(ROOT)}"
        files.append(
            mkdocs.File.generated(config, name, abs_src_path=str(path), inclusion=mkdocs.InclusionLevel.NOT_IN_NAV)
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between docs/ and the rest of the repository lead to where the site has the files."""
    here = page.file.src_uri
    outside = here.startswith(f"{OUTSIDE}/")
    source = ROOT / here.removeprefix(f"{OUTSIDE}/") if outside else DOCS / here

    def moved(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        place = target.relative_to(DOCS) if target.is_relative_to(DOCS) else Path(OUTSIDE, target.relative_to(ROOT))
        return f"{match[1]}{os.path.relpath(place, Path(here).parent)}{match[3]}"

    return LINK.sub(moved, markdown)


def _targets(page: Path) -> set[Path]:
    links = (match[2] for match in LINK.finditer(page.read_text("utf-8")))
    return {target for link in links if (target := (page.parent / link).resolve()).is_file()}
