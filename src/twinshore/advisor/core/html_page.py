"""The frame of every self-contained HTML page, and what pages are made of: the files in `advisor/pages`."""

from __future__ import annotations

from html import escape
from importlib import resources


def page_part(name: str) -> str:
    return resources.files("twinshore.advisor").joinpath("pages", name).read_text(encoding="utf-8")


def html_page(title: str, body: str, *styles: str) -> str:
    """Returns the page. `title` is plain text; `body` is inserted unescaped. `styles`: names of files."""
    style = "".join(map(page_part, styles))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
